"""Names that come from ``torch.cuda``, and that other files, other code or a pattern use, too."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
import torch

from anyaccel.accelerator import DeepSpeedAccelerator
from anyaccel.migrate.answers import Decided
from anyaccel.migrate.files import migrate_files
from anyaccel.migrate.site import SiteOutcome
from anyaccel.migrate.source import migrate_source

PROGRAMS = {  # what each of them prints stays the same
    "a local name before its assignment": (
        "from torch.cuda import memory_allocated\ndef f(read):\n"
        "    memory_allocated = read\n    first = memory_allocated()\n"
        "    memory_allocated = lambda: 7\n    return first, memory_allocated()\nprint(f(lambda: 42))\n"
    ),
    "a wrapper of the same name": (
        "from torch.cuda import is_available\ncalls = []\n_old = is_available\ndef is_available():\n    calls.append(1)\n"
        "    return _old()\ndef f():\n    return is_available()\nf()\nprint(len(calls))\n"
    ),
    "an import under a condition": (
        "LOG = []\nif LOG:\n    from torch.cuda.nvtx import range_push\nelse:\n"
        "    def range_push(name):\n        LOG.append(name)\n"
        "range_push('step')\nprint(LOG)\n"
    ),
    "a name that is assigned later": "from torch.cuda import synchronize\nsynchronize = print\nsynchronize('said')\n",
    "a loop's name": "from torch.cuda import synchronize\nfor synchronize in (print,):\n    synchronize('said')\n",
    "a capture": "from torch.cuda import synchronize\nmatch [print]:\n    case [synchronize]:\n        synchronize('said')\n",
    "another capture": (
        "from torch.cuda import synchronize\nmatch [1, print]:\n    case [1, *synchronize]:\n        synchronize[0]('said')\n"
    ),
    "the value of a pattern": (
        "import torch\nmatch torch.float32:\n    case torch.cuda.FloatTensor():\n        print(1)\n"
        "    case torch.float32:\n        print(2)\n"
    ),
    "two imports on a line": (
        "import torch\nfrom torch.cuda import synchronize; from torch.cuda import empty_cache\n"
        "def f():\n    synchronize()\n    empty_cache()\nprint('said')\n"
    ),
    "an import that may fail": (
        "try:\n    from torch.cuda import empty_cache\nexcept ImportError:\n    def empty_cache():\n        pass\n"
        "empty_cache()\nprint(1)\n"
    ),
}
EXPORTS = ['__all__ += ["synchronize"]', '__all__: list = ["synchronize"]', '__all__.append("synchronize")']
LAZY = """
def lazy():
    import torch
    return torch

def f():
    torch = lazy()
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    torch.cuda.synchronize()
    return torch.ones(1).to(device)
"""


def printed(source: str) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(source, "program", "exec"), {"__name__": "program"})  # noqa: S102
    return said.getvalue()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_the_same(name: str) -> None:
    before = PROGRAMS[name]
    assert printed(migrate_source(before).new) == printed(before) != ""


def test_an_import_that_may_fail_is_not_taken_for_two_names() -> None:
    assert "get_accelerator().empty_cache()" in migrate_source(PROGRAMS["an import that may fail"]).new


@pytest.mark.parametrize("name", ["a wrapper of the same name", "an import under a condition", "a loop's name"])
def test_a_name_with_two_meanings_is_reported(name: str) -> None:
    reasons = [site.reason for site in migrate_source(PROGRAMS[name]).sites if site.outcome is SiteOutcome.REPORTED]
    assert "the name is torch.cuda's or another one; use two names" in reasons


@pytest.mark.parametrize("export", EXPORTS)
def test_a_name_that_is_exported_stays(export: str) -> None:
    new = migrate_source(f"from torch.cuda import synchronize\n__all__ = []\n{export}\nsynchronize()\n").new
    assert "get_accelerator().synchronize()" in new
    assert "from torch.cuda import synchronize\n" in new


@pytest.mark.parametrize(
    "read", ["from compat import {0}\n{0}", "import compat\ncompat.{0}", "from .compat import *\n{0}"]
)
@pytest.mark.parametrize("name", ["synchronize", "amp.autocast"])
def test_a_name_that_another_file_gets_from_here_stays_and_is_reported(tmp_path: Path, read: str, name: str) -> None:
    module, _, last = f"torch.cuda.{name}".rpartition(".")
    (tmp_path / "compat.py").write_text(f"from {module} import {last}\nwith {last}():\n    pass\n")
    (tmp_path / "main.py").write_text(f"{read.format(last)}()\n")
    paths = [tmp_path / "compat.py", tmp_path / "main.py"]
    compat, _ = migrate_files(paths, "anyaccel")
    assert f"from {module} import {last}\n" in compat.new
    assert [(site.question, site.reason) for site in compat.sites if site.outcome is SiteOutcome.REPORTED] == [
        ("imports", f"other files import {last} from here; port them, too")
    ]
    kept, _ = migrate_files(paths, "anyaccel", decided=lambda _: Decided({"imports": "keep"}))
    assert all(site.outcome is not SiteOutcome.REPORTED for site in kept.sites)


def test_torch_from_a_function_is_torch() -> None:
    new = migrate_source(LAZY).new
    assert "device = get_accelerator().device_name()\n    get_accelerator().synchronize()\n" in new


def test_a_pattern_is_reported() -> None:
    source = "import torch\nmatch x:\n    case torch.cuda.FloatTensor() | torch.device('cuda'):\n        pass\n"
    done = migrate_source(source)
    assert done.new == source
    assert any("a pattern of a match statement takes no call" in site.reason for site in done.sites)


def test_a_pattern_may_be_ignored() -> None:
    source = "import torch\nmatch x:\n    case torch.cuda.FloatTensor():  # anyaccel: ignore\n        pass\n"
    assert all(site.outcome is SiteOutcome.LEFT for site in migrate_source(source).sites)


def test_every_function_that_the_contract_has_is_rewritten_or_has_advice() -> None:
    both = {
        name
        for name in dir(DeepSpeedAccelerator)
        if not name.startswith("_") and callable(getattr(torch.cuda, name, None))
    }
    assert len(both) > 40
    for name in sorted(both):
        done = [migrate_source(f"import torch\nx = torch.cuda.{name}({given})\n") for given in ("", "y")]
        assert any("has nothing like" not in site.reason for each in done for site in each.sites), name
