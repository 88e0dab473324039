"""Autocast and gradient scalers that name CUDA: whatever the order of the arguments, they do nothing on a CPU, as before."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
import torch

from anyaccel import CPU_Accelerator, use_accelerator
from anyaccel.migrate.project import survey
from anyaccel.migrate.source import migrate_source

_AUTOCAST = ("torch.autocast", "torch.amp.autocast")
_SCALER = ("torch.GradScaler", "torch.amp.GradScaler")


def _arguments() -> list[tuple[str, str]]:
    """Return each class with each order of its arguments, with the device by place and by keyword."""
    found = []
    for names, device, others in (
        (_AUTOCAST, "device_type", ("dtype=torch.bfloat16", "enabled=True", "enabled=flag", "cache_enabled=False")),
        (_SCALER, "device", ("init_scale=2.0", "enabled=True", "enabled=flag", "growth_interval=3")),
    ):
        for name in names:
            for other in ((), *((each,) for each in others), (others[0], others[2])):
                for given in permutations((f'{device}="cuda"', *other)):
                    found.append((name, ", ".join(given)))
                found.append((name, ", ".join(('"cuda"', *other))))
    return found


@pytest.mark.parametrize("form", ["{name}({given})", "functools.partial({name}, {given})()"])
@pytest.mark.parametrize(("name", "given"), _arguments())
def test_a_cpu_gets_one_that_does_nothing(name: str, given: str, form: str) -> None:
    source = f"import functools\nimport torch\nflag = True\nmade = {form.format(name=name, given=given)}\n"
    migrated = migrate_source(source, "anyaccel")
    assert '"cuda"' not in migrated.new
    found: dict[str, Any] = {}
    with use_accelerator(CPU_Accelerator()):
        exec(migrated.new, found)  # noqa: S102, the code under test
    made = found["made"]
    is_enabled = made.is_enabled() if isinstance(made, torch.amp.GradScaler) else made._enabled
    assert is_enabled is False, migrated.new


@pytest.mark.parametrize("name", ["autocast", "GradScaler"])
@pytest.mark.parametrize(
    "import_", ["from torch.amp import {}", "from torch.amp import (\n    {},\n)", "from torch import {}"]
)
@pytest.mark.parametrize("given", ["'cuda', enabled=flag", "enabled=flag, {device}='cuda'"])
def test_a_cpu_gets_the_same_by_way_of_a_module_of_the_project(name: str, import_: str, given: str) -> None:
    project = survey([("compat", import_.format(name))])
    given = given.format(device="device" if name == "GradScaler" else "device_type")
    new = migrate_source(f"from mine.compat import {name}\nmade = {name}({given})\n", "anyaccel", project=project).new
    assert 'enabled=flag and get_accelerator().device_name() != "cpu"' in new


@pytest.mark.parametrize("call", ["torch.autocast(device)", "torch.amp.GradScaler(device=device, enabled=flag)"])
def test_the_default_of_a_device_that_only_enables_it_stays(call: str) -> None:
    source = f"import torch\n\ndef made(flag, device='cuda'):\n    return {call}\n"
    migrated = migrate_source(source, "anyaccel")
    assert migrated.new == source
    assert [site.reason for site in migrated.sites if "mixed precision" in site.reason]
    moved = source.replace("return", "flag.to(device)\n    return")  # which fails without CUDA
    assert "device=get_accelerator().device_name()" in migrate_source(moved, "anyaccel").new
