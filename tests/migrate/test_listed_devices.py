"""Checks of a device's name against the allowed ones: those that only refuse others also allow the accelerator's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from anyaccel import CPU_Accelerator, XPU_Accelerator, use_accelerator
from anyaccel.migrate.source import migrate_source

if TYPE_CHECKING:
    from accelerator import DeepSpeedAccelerator

_LISTS = ('["cuda", "cpu"]', '("cpu", "cuda", "mps")', '{"cpu", "cuda"}', '[\n        "cuda",\n        "cpu",\n    ]')
_REFUSALS = (
    "assert device in {listed}",
    'assert device in {listed}, "another device"',
    "if device not in {listed}:\n        raise ValueError(device)",
    "if device not in {listed}:\n        print(device)\n        raise ValueError(device)",
)
_OTHERS = (
    "if device in {listed}:\n        print(device)",
    "if device not in {listed}:\n        print(device)",
    "if device not in {listed}:\n        raise ValueError(device)\n    else:\n        print(device)",
    "allowed = {listed}\n    if device not in allowed:\n        raise ValueError(device)\n    print(len(allowed))",
    "known = device in {listed}",
    "allowed = {listed}\n    if device not in allowed:\n        raise ValueError(device)",
    'allowed = {listed}\n    assert device in allowed, f"not one of {{allowed}}"',
    "allowed: object = {listed}\n    assert device in allowed",
    "allowed = frozenset({listed})\n    assert device in allowed",
)
_CLASS = """import torch

class Runner:
    DEVICES = ("cpu", "cuda")

    def __init__(self, device="cuda"):
        if device not in {owner}.DEVICES:
            raise ValueError(device)
        self.x = torch.ones(1, device=device)
"""
_FUNCTION = 'import torch\n\ndef build(device="cuda"):\n    {check}\n    return torch.ones(1, device=device)\n'


def _accepts(new: str, accelerator: DeepSpeedAccelerator, device: str) -> bool:
    found: dict[str, Any] = {"torch": None}
    with use_accelerator(accelerator):
        exec(new.replace("torch.ones(1, device=device)", "True"), found)  # noqa: S102, the code under test
        try:
            return bool(found["build"](device))
        except (AssertionError, ValueError):
            return False


@pytest.mark.parametrize("listed", _LISTS)
@pytest.mark.parametrize("check", _REFUSALS)
def test_the_accelerator_is_allowed_and_all_others_as_before(check: str, listed: str) -> None:
    source = _FUNCTION.format(check=check.format(listed=listed))
    new = migrate_source(source, "anyaccel").new
    assert 'device="cuda"' not in new
    for device in ("cpu", "cuda", "mps", "tpu", "xpu"):
        was_accepted = _accepts(source, CPU_Accelerator(), device)
        assert _accepts(new, CPU_Accelerator(), device) == was_accepted
        assert _accepts(new, XPU_Accelerator(), device) == (was_accepted or device == "xpu")


@pytest.mark.parametrize("listed", _LISTS)
@pytest.mark.parametrize("check", _OTHERS)
def test_other_checks_stay_with_the_default_that_passes_them(check: str, listed: str) -> None:
    source = _FUNCTION.format(check=check.format(listed=listed))
    migrated = migrate_source(source, "anyaccel")
    assert migrated.new == source
    assert any("allowed" in site.reason for site in migrated.sites)


@pytest.mark.parametrize("owner", ["self", "Runner"])
def test_so_does_the_default_where_a_class_has_the_list(owner: str) -> None:
    source = _CLASS.format(owner=owner)
    assert migrate_source(source, "anyaccel").new == source


def test_a_list_with_a_comment_for_each_device_stays() -> None:
    listed = '[\n        "cpu",  # slow\n        "cuda",  # needs a GPU\n    ]'
    source = _FUNCTION.format(check=f"assert device in {listed}")
    assert migrate_source(source, "anyaccel").new == source


@pytest.mark.parametrize(
    "check", ["x.device.type not in ('cpu', 'cuda')", "torch.device(device).type not in ('cpu', 'cuda')"]
)
def test_the_device_of_a_tensor_is_refused_as_before(check: str) -> None:
    source = (
        f"import torch\n\ndef launch(x, device):\n    if {check}:\n        raise ValueError(x)\n    ops.kernel(x)\n"
    )
    assert migrate_source(source, "anyaccel").new == source


def test_so_is_one_that_has_a_name() -> None:
    check = 'kind = x.device.type\n    assert kind in ("cpu", "cuda")'
    source = f"import torch\n\ndef launch(x):\n    {check}\n    ops.kernel(x)\n"
    assert migrate_source(source, "anyaccel").new == source
