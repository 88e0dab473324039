"""Every rule on code written for it: what it must rewrite, what it must not touch, and what it reports."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from anyaccel.migrate.answers import Decided
from anyaccel.migrate.files import FileResult
from anyaccel.migrate.findings import findings_of
from anyaccel.migrate.rules import RULES
from anyaccel.migrate.site import MigrateError, SiteOutcome, SourceError
from anyaccel.migrate.source import migrate_source
from anyaccel.migrate.targets import TARGETS

from . import corpus


def test_every_rule_has_a_case() -> None:
    assert set(corpus.names()) >= set(RULES)


@pytest.mark.parametrize("name", corpus.names())
def test_the_new_text_and_the_report(name: str) -> None:
    migration = corpus.migrated(name)
    assert migration.new == (corpus.CASES / name / "after.txt").read_text()
    assert corpus.report_of(migration) == (corpus.CASES / name / "report.txt").read_text()
    assert {site.rule for site in migration.sites} <= set(RULES)


@pytest.mark.parametrize("name", corpus.names())
def test_line_endings_change_nothing_else(name: str) -> None:
    new = migrate_source(corpus.before(name).replace("\n", "\r\n")).new
    assert new == (corpus.CASES / name / "after.txt").read_text().replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("name", "target"),
    [
        pytest.param(name, target, marks=() if number % len(TARGETS) == place else pytest.mark.slow)
        for number, name in enumerate(corpus.names())
        for place, target in enumerate(TARGETS)
    ],
)
def test_a_second_run_changes_nothing(name: str, target: str) -> None:
    """It reports the same, too, except half precision, which is reported only where a model is moved by the same run."""
    once = corpus.migrated(name, target)
    ast.parse(once.new)
    twice = migrate_source(once.new, target)
    assert twice.new == once.new
    reports = [
        Counter(site.rule for site in each.sites if site.outcome is SiteOutcome.REPORTED and site.rule != "half")
        for each in (once, twice)
    ]
    assert reports[0] == reports[1] or name == "handed-to-torch"


@pytest.mark.parametrize("name", corpus.names())
def test_no_comment_is_lost(name: str) -> None:
    migration = corpus.migrated(name)
    lost = _comments(migration.old) - _comments(migration.new)
    assert set(lost) <= {"# with its comment"}  # the comment belonged to a removed import


def _comments(source: str) -> Counter[str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return Counter(token.string for token in tokens if token.type == tokenize.COMMENT)


@pytest.mark.parametrize("name", sorted(set(RULES) - {"env", "half", "imports"}))
def test_the_documented_example_is_what_happens(name: str) -> None:
    rule = RULES[name]
    imports = (
        "import torch\nfrom torch.nn.parallel import DistributedDataParallel as DDP\nimport torch.distributed as dist\n"
    )
    code = f"{imports}{rule.before}\n"
    assert rule.after in migrate_source(code).new.replace(" pass\n", " pass")


def test_deepspeed_lacks_some_members() -> None:
    migration = migrate_source("import torch\nwith torch.cuda.device(0):\n    torch.cuda.synchronize()\n", "deepspeed")
    assert "from deepspeed.accelerator import get_accelerator\n" in migration.new
    assert "    get_accelerator().synchronize()" in migration.new
    assert [site.reason for site in migration.sites if site.outcome is SiteOutcome.REPORTED] == [
        "deepspeed has no device_guard; --target anyaccel has"
    ]


TORCH_ONLY = """import torch
import torch.distributed as dist

x = torch.ones(2, device="cuda" if torch.cuda.is_available() else "cpu").cuda(0)
torch.cuda.set_device(0)
torch.cuda.synchronize()
torch.cuda.empty_cache()
figures = torch.cuda.memory_allocated(), torch.cuda.mem_get_info(), torch.cuda.memory_stats()
path = tempfile.mkdtemp()
dist.init_process_group("nccl", init_method=f"file://{path}/store", rank=0, world_size=1)
dist.all_reduce(x)
dist.destroy_process_group()
"""


def test_torch_accelerator_needs_no_package_and_runs_without_an_accelerator() -> None:
    after = migrate_source("import tempfile\n" + TORCH_ONLY, "torch.accelerator").new
    assert "get_accelerator" not in after
    assert "cuda" not in after
    assert after.count("def accelerator_name(") == after.count("def if_accelerator(") == 1
    found: dict[str, object] = {}
    exec(after, found)  # noqa: S102  # the tool's own output
    assert str(found["x"]) == "tensor([1., 1.])"
    assert found["figures"] == (0, (0, 0), {}) or torch.accelerator.is_available()
    assert migrate_source(after + "y = x.cuda()\n", "torch.accelerator").new.count("def accelerator_name(") == 1


def test_torch_accelerators_helper_names_indices_and_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {}
    exec(migrate_source("import torch\nx = torch.ones(2).cuda()\n", "torch.accelerator").new, found)  # noqa: S102
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: torch.device("cuda"))
    named = [found["accelerator_name"](given) for given in (None, 1, "1", torch.device("cuda:1"), "cpu")]
    assert named == ["cuda", "cuda:1", "cuda:1", "cuda:1", "cpu"]


def test_a_helper_takes_no_name_that_is_taken() -> None:
    before = "import torch\ndef accelerator_name():\n    return 1\nx = torch.ones(1).cuda()\n"
    after = migrate_source(before, "torch.accelerator").new
    assert after.count("def accelerator_name():") == 1
    assert "x = torch.ones(1).to(torch_accelerator_name())" in after
    exec(after, {})  # noqa: S102  # the tool's own output


def test_deepspeeds_memory_is_asked_by_what_it_has() -> None:
    before = "import torch\na = torch.cuda.get_device_properties(0).total_memory\nb = torch.cuda.mem_get_info(1)\n"
    after = migrate_source(before, "deepspeed").new
    assert "a = get_accelerator().total_memory(0)\n" in after
    assert "b = (get_accelerator().available_memory(1), get_accelerator().total_memory(1))\n" in after


def test_a_name_that_is_taken_is_not_taken() -> None:
    before = "import torch\ndef get_accelerator():\n    return 1\nx = torch.ones(1).cuda()\n"
    after = migrate_source(before).new
    assert "import anyaccel\n" in after
    assert "x = torch.ones(1).to(anyaccel.get_accelerator().device_name())" in after


def test_an_import_that_is_there_is_used() -> None:
    before = "from anyaccel import get_accelerator\nimport torch\nx = torch.ones(1).cuda()\n"
    assert migrate_source(before).new.count("import get_accelerator") == 1


def test_a_module_that_has_deepspeeds_accelerator_keeps_to_it() -> None:
    before = "import torch\nfrom deepspeed.accelerator import get_accelerator\nget_accelerator().range_pop()\n"
    after = migrate_source(before + "x = x.cuda()\ntorch.cuda.mem_get_info()\n").new
    assert after == before + (
        "x = x.to(get_accelerator().device_name())\n"
        "(get_accelerator().available_memory(), get_accelerator().total_memory())\n"
    )


@pytest.mark.parametrize("name", corpus.names())
def test_check_finds_what_migrate_does_not_leave(name: str) -> None:
    migration = corpus.migrated(name)
    result = FileResult(Path("a.py"), migration.old, migration.new, migration.sites)
    sites = [(site.line, site.column, site.rule) for site in migration.sites if site.outcome is not SiteOutcome.LEFT]
    findings = findings_of([result])
    assert [(each.line, each.column, each.rule) for each in findings] == sites
    for each in findings:
        old, _, new = each.message.partition(" is tied to CUDA; anyaccel migrate writes ")
        assert old != new


GUARDS = (corpus.CASES / "cuda-guards" / "before.txt").read_text()


def test_guards_are_dropped_where_a_person_asks_for_it() -> None:
    migration = migrate_source(GUARDS, decided=Decided(drops_cuda_guards=True))
    assert migration.new == (corpus.CASES / "cuda-guards" / "dropped.txt").read_text()
    lines = GUARDS.splitlines()
    assert migration.old == GUARDS
    for site in migration.sites:
        assert lines[site.line - 1][site.column - 1 :].startswith(site.code.splitlines()[0])
    again = migrate_source(migration.new, decided=Decided(drops_cuda_guards=True))
    assert again.new == migration.new
    assert migration.passed_over == again.passed_over == ()


TRAPS = {
    "TorchScript": "@torch.jit.script\ndef f(x):\n    return x.cuda()\n",
    "a camera": "camera.record_stream('rtsp://x')\n",
    "an option": "if args.is_cuda:\n    print(1)\n",
    "a folder": "name = 'cuda' if torch.cuda.is_available() else 'cpu'\npath = os.path.join('csrc', name)\n",
    "a kernel": "if torch.cuda.is_available():\n    y = _C.forward(1)\n",
    "a handle": "s = torch.cuda.current_stream()\next.run(s.cuda_stream)\n",
    "compute capability": "p = torch.cuda.get_device_properties(0)\nprint(p.major)\n",
    "a guard as a value": "g = torch.cuda.device(0)\n",
    "an index that is text": "torch.cuda.set_rng_state(s, device=f\"cuda:{os.environ['LOCAL_RANK']}\")\n",
    "an attention for CUDA": "if torch.cuda.is_available():\n    attention = 'flash_attention_2'\n",
    "a key": "def build(dev='cuda'):\n    return LIBS[dev]\n",
    "a type's names": "def f(device: Literal['cpu', 'cuda'] = 'cuda'):\n    return device\n",
    "NCCL itself": "backend = 'nccl' if torch.distributed.is_nccl_available() else 'gloo'\n",
    "a script's globals": "language = 'cuda'\nfor key, value in globals().items():\n    print(key)\n",
    "another library": "from xgboost import XGBClassifier\nmodel = XGBClassifier(device='cuda')\n",
}


@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_is_reported_and_not_rewritten(trap: str) -> None:
    source = f"import os\nimport torch\n{TRAPS[trap]}"
    migration = migrate_source(source)
    assert migration.new == source
    if trap != "a camera":  # which has nothing to do with CUDA
        assert [site for site in migration.sites if site.outcome is SiteOutcome.REPORTED]


@pytest.mark.parametrize("indent", ["", "    "])
def test_an_import_of_amp_moves_along_with_a_name_that_nothing_uses(indent: str) -> None:
    head = "import torch\ntry:\n" if indent else "import torch\n"
    tail = "except ImportError:\n    pass\n" if indent else ""
    before = f"{head}{indent}from torch.cuda.amp import GradScaler, autocast\n{tail}s = GradScaler(enabled=False)\n"
    after = migrate_source(before).new
    assert "from torch.amp import GradScaler, autocast\n" in after
    assert "s = GradScaler(get_accelerator().device_name(), enabled=False)\n" in after
    assert migrate_source(after).new == after


def test_an_import_of_amp_that_is_ignored_stays() -> None:
    before = "import torch\nfrom torch.cuda.amp import autocast  # anyaccel: ignore\nwith autocast():\n    pass\n"
    after = migrate_source(before).new
    assert "from torch.cuda.amp import autocast  # anyaccel: ignore\n" in after
    assert "with torch.amp.autocast(get_accelerator().device_name(), enabled=" in after


@pytest.mark.parametrize(
    "body",
    [
        "def move(x, device=None):\n    return x.cuda(device)\n",
        "def a():\n    thing = 0\n    return thing\ndef b(x, thing):\n    return x.cuda(thing)\n",
    ],
)
def test_what_may_be_an_index_a_device_or_none_is_reported_where_the_target_names_no_devices(body: str) -> None:
    before = f"import torch\n{body}"
    assert re.search(r"x\.to\(get_accelerator\(\)\.device_name\((device|thing)\)\)", migrate_source(before).new)
    assert migrate_source(before, "deepspeed").new == before


@pytest.mark.parametrize(
    ("passed", "new"),
    [("0", "device_name(device)"), ("torch.device('cuda:1')", ".to(device)"), ("x", ".to(device)")],
)
def test_what_callers_pass_tells_a_device_from_an_index(passed: str, new: str) -> None:
    before = f"import torch\ndef move(x, device):\n    return x.cuda(device)\nmove(1, {passed})\n"
    migration = migrate_source(before)
    assert new in migration.new


def test_an_index_that_is_text_stays_in_a_name() -> None:
    before = "import os\nimport torch\ntorch.cuda.set_device(f\"cuda:{os.environ['LOCAL_RANK']}\")\n"
    assert migrate_source(before).new.endswith(
        "get_accelerator().set_device(get_accelerator().device_name(os.environ['LOCAL_RANK']))\n"
    )


def test_a_form_feed_moves_no_line() -> None:
    before = "import os\n\x0c\nimport torch\nfrom torch.cuda import Event\nEvent().record()\n"
    assert migrate_source(before).new == (
        "import os\n\x0c\nimport torch\nfrom anyaccel import get_accelerator\nget_accelerator().Event().record()\n"
    )


def test_a_match_statement() -> None:
    before = "import torch\nmatch x:\n    case 1:\n        y = x.cuda()\n"
    assert "y = x.to(get_accelerator().device_name())" in migrate_source(before).new


def test_a_storage_takes_its_device_by_name_only() -> None:
    before = "import torch\ns = torch.load(p, map_location=lambda s, l: s.cuda(0))\n"
    assert "lambda s, l: s.to(device=get_accelerator().device_name(0))" in migrate_source(before).new


@pytest.mark.parametrize("source", ["", "\n", "# cuda\n", "x = 1\n", "import torch\n"])
def test_nothing_to_do(source: str) -> None:
    assert migrate_source(source).new == source


def test_line_endings_and_tabs_stay() -> None:
    before = "import torch\r\nif True:\r\n\tx = torch.ones(1).cuda()\t# moved\r\n"
    after = migrate_source(before).new
    assert after == before.replace(".cuda()", ".to(get_accelerator().device_name())").replace(
        "torch\r\n", "torch\r\nfrom anyaccel import get_accelerator\r\n", 1
    )


@pytest.mark.parametrize(
    ("source", "line", "said"),
    [
        ("import torch\nx = torch.cuda.(\n", 2, "invalid syntax"),
        ('print "x"\nimport torch\nx.cuda()\n', 1, "Missing parentheses in call to 'print'"),
        ("import torch\nx = (torch.cuda,\n", 2, "'(' was never closed"),
    ],
)
def test_what_is_not_python_is_refused_with_its_line_and_pythons_reason(source: str, line: int, said: str) -> None:
    with pytest.raises(SourceError) as caught:
        migrate_source(source)
    assert caught.value.line == line
    assert f"reading Python failed: got {said}" in str(caught.value)
    assert "Fix:" in str(caught.value)


def test_an_unknown_target() -> None:
    with pytest.raises(MigrateError, match=r"got 'jax'; expected anyaccel, deepspeed, torch\.accelerator"):
        migrate_source("", "jax")
