"""A device that this repository does not know: the example package, installed as users install it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..programs import run_command_line

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLE = Path(__file__).parents[2] / "examples" / "external_accelerator"

TRAINS = """
import json, torch, anyaccel
accelerator = anyaccel.get_accelerator()

def losses(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data, target = torch.randn(16, 4).to(device), torch.randn(16, 1).to(device)
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(data), target)
        loss.backward()
        optimizer.step()
        yield loss.item()
    assert {parameter.device for parameter in model.parameters()} == {torch.device(device)}

print(json.dumps({device: list(losses(device)) for device in ("cpu", "toy:0", "toy:1")}))
"""

ALIASES = """
import torch, anyaccel
device = anyaccel.get_accelerator().current_device_name()
base = torch.zeros(2, 3, device=device)
row, column, flat = base[0], base.t()[2], base.view(6)
assert row.add_(1) is row
column.mul_(5)
torch.add(row, 1, out=base[1])
flat[3] = 7
assert base.tolist() == [[1, 1, 5], [7, 2, 6]], base
assert row.tolist() == [1, 1, 5]
"""

CONFORMS = """
import json, anyaccel
from anyaccel.testing import run_checks
found = [(result.outcome.value, result.member, result.why) for result in run_checks(anyaccel.get_accelerator())]
assert not [one for one in found if one[0] == "wrong"], found
print(json.dumps([member for outcome, member, _ in found if outcome == "unsupported"]))
"""


LIES = """
import anyaccel
from anyaccel.testing import Outcome
from anyaccel.testing.outcome import run_check
Toy = type(anyaccel.get_accelerator())

def first(name):  # whatever the index, it answers for the first device
    return lambda self, *arguments: getattr(Toy, name)(self, 0)

LIES = {
    "device_name": lambda self, index=None: Toy.device_name(self, None if index is None else 0),
    "device": first("device"),
    "current_device_name": lambda self: "toy:0",
    "manual_seed_all": lambda self, seed: self.manual_seed(seed),
    "get_rng_state": first("get_rng_state"),
    "set_rng_state": lambda self, state, index=None: Toy.set_rng_state(self, state, 0),
    "set_rng_state_all": lambda self, states: self.set_rng_state(states[0], 0),
    "default_generator": first("default_generator"),
    "memory_allocated": first("memory_allocated"),
}
for member, lie in LIES.items():
    for lies in (False, True):
        checked = type("Checked", (Toy,), {member: lie} if lies else {})()
        print(member, lies, run_check(checked, member).outcome is Outcome.WRONG)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process with the example installed; built from a copy, which keeps the build's leftovers."""
    folder = tmp_path_factory.mktemp("example")
    source, site = folder / "source", folder / "site"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--target", site, source], check=True)
    return {"PYTHONPATH": str(site), "PYTHONWARNINGS": "error"}


def test_it_is_found_and_chosen(
    installed: dict[str, str], run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    code = """
import anyaccel, torch
from anyaccel.accelerator.real_accelerator import candidates
accelerator = anyaccel.get_accelerator()
print(type(accelerator).__name__, accelerator.current_device_name(), candidates()[0].source, sep="|")
assert accelerator.on_accelerator(torch.ones(2, device="toy")) and not accelerator.supports("create_graph")
"""
    assert run_with_torch(code, **installed).stdout == "ToyAccelerator|toy:0|entry point of anyaccel-toy\n"


def test_the_report_lists_it(installed: dict[str, str], tmp_path: Path) -> None:
    report = json.loads(run_command_line(["report", "--json"], {**os.environ, **installed}, tmp_path).stdout)
    assert next((device["name"], device["chosen"]) for device in report["devices"]) == ("toy", True)
    assert {"toy:0 total", "toy:1 total"} <= set(report["memory"])
    assert [op["state"] for op in report["ops"] if op["builder"] == "CPUAdamBuilder"] != ["not buildable"]


def test_the_environment_overrides_it(
    installed: dict[str, str], run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    code = "import anyaccel; print(anyaccel.get_accelerator().device_name())"
    assert run_with_torch(code, **installed, DS_ACCELERATOR="cpu").stdout == "cpu\n"
    assert run_with_torch(code, **installed, DS_ACCELERATOR="toy").stdout == "toy\n"


def test_a_member_that_answers_for_the_first_device_only_is_found(
    installed: dict[str, str], run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    found = [line.split() for line in run_with_torch(LIES, **installed).stdout.splitlines()]
    assert len(found) == 18
    assert [line for line in found if line[1] != line[2]] == []


def test_it_keeps_the_contract(
    installed: dict[str, str], run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    assert set(json.loads(run_with_torch(CONFORMS, **installed).stdout)) == {
        "communication_backend_version",
        "get_device_capability",
        "create_graph",
        "capture_to_graph",
        "replay_graph",
        "graph_pool_handle",
        "make_graphed_callables",
        "MemPool",
        "use_mem_pool",
        "memory_snapshot",
        "reset_accumulated_memory_stats",
        "get_per_process_memory_fraction",
        "set_per_process_memory_fraction",
        "utilization",
        "can_device_access_peer",
        "get_arch_list",
    }


def test_training_gives_the_losses_of_the_cpu(
    installed: dict[str, str], run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    losses = json.loads(run_with_torch(TRAINS, **installed).stdout)
    assert losses["toy:0"] == losses["toy:1"] == losses["cpu"]
    assert losses["cpu"][-1] < losses["cpu"][0]


def test_views_share_memory(
    installed: dict[str, str], run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    assert run_with_torch(ALIASES, **installed).returncode == 0


def test_memory_is_counted_while_a_view_lives(
    installed: dict[str, str], run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    code = """
import torch, anyaccel
accelerator = anyaccel.get_accelerator()
with accelerator.device_guard(1):
    base = torch.empty(1000, device="toy")
    view = base[1:]
    assert accelerator.memory_allocated() == 4000
    del base
    assert accelerator.memory_allocated() == 4000
    del view
    assert accelerator.memory_allocated() == 0
    assert accelerator.max_memory_allocated() == 4000
assert accelerator.memory_allocated() == 0
"""
    run_with_torch(code, **installed)


BROKEN_PLUG_INS = {
    "raises at import": "raise ImportError('libbroken.so is not installed')",
    "exits at import": "raise SystemExit('libbroken.so is not installed')",
    "raises when made": "def Accelerator(): raise RuntimeError('libbroken.so is not installed')",
    "lacks members": "class Accelerator:\n    def is_available(self): return True",
    "has another name": "Akzelerator = None",
}


def test_broken_plug_ins_are_skipped_with_a_warning_each(
    tmp_path: Path, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    for number, code in enumerate(BROKEN_PLUG_INS.values()):
        metadata = tmp_path / "site" / f"broken_device{number}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: broken-device{number}\nVersion: 1.0\n")
        plug_in = f"broken{number} = broken_device{number}:Accelerator"
        (metadata / "entry_points.txt").write_text(f"[anyaccel.accelerators]\n{plug_in}\n")
        (tmp_path / "site" / f"broken_device{number}.py").write_text(code + "\n")
    code = "import anyaccel; print(anyaccel.get_accelerator().device_name())"
    environment = {"PYTHONPATH": str(tmp_path / "site"), "PYTHONWARNINGS": "error"}
    finished = run_with_torch(code, **environment)
    assert finished.stdout == run_with_torch(code).stdout  # the CPU, if the machine has no other device
    for number, defect in enumerate(BROKEN_PLUG_INS):
        said = f"the accelerator plug-in 'broken{number}' (broken_device{number}:Accelerator) failed and is skipped"
        assert finished.stderr.count(said) == 1, defect
    asked_for = run_with_torch(code, check=False, **environment, DS_ACCELERATOR="broken2")
    for number in range(len(BROKEN_PLUG_INS)):
        assert f"broken{number} (" in asked_for.stderr.partition("expected an available one of: ")[2]
    assert run_with_torch(code, **environment, DS_ACCELERATOR="cpu").stderr == ""


def test_a_plug_in_for_a_device_that_torch_knows_is_reported_as_the_one_chosen(
    tmp_path: Path, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    metadata = tmp_path / "tuned_cpu-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tuned-cpu\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[anyaccel.accelerators]\ntuned = tuned_cpu:Accelerator\n")
    (tmp_path / "tuned_cpu.py").write_text(
        "from anyaccel import CPU_Accelerator\nclass Accelerator(CPU_Accelerator):\n    pass\n"
    )
    code = (
        "from anyaccel.cli.report_data import gather\n"
        "print([(device.name, device.source) for device in gather().devices if device.chosen])"
    )
    assert "[('tuned', 'entry point of tuned-cpu')]" in run_with_torch(code, PYTHONPATH=str(tmp_path)).stdout
    (tmp_path / "tuned_cpu.py").write_text("raise SystemExit('imported')")
    for name in ("tuned", "cpu"):
        (metadata / "entry_points.txt").write_text(f"[anyaccel.accelerators]\n{name} = tuned_cpu:Accelerator\n")
        asked = run_with_torch(code, PYTHONPATH=str(tmp_path), DS_ACCELERATOR="cpu")
        assert "[('cpu', 'built in')]" in asked.stdout
        assert "imported" not in asked.stderr.replace("not imported", "")
