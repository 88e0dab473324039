"""The contract matches deepspeed 0.19.8's in names and parameters, and is documented."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from typing import Any

import pytest

import anyaccel
from anyaccel.migrate.targets import BEYOND_DEEPSPEED as OWN_ADDITIONS


def _deepspeed_class() -> Any:
    """Load deepspeed's contract from its file: importing deepspeed itself would run detection."""
    package = importlib.util.find_spec("deepspeed")
    if package is None:  # on a machine with a GPU, only torch is certain
        pytest.skip("deepspeed is not installed", allow_module_level=True)
    assert package.origin is not None
    file = Path(package.origin).parent / "accelerator" / "abstract_accelerator.py"
    spec = importlib.util.spec_from_file_location("deepspeed_contract", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.DeepSpeedAccelerator


THEIRS = _deepspeed_class()
IMPLEMENTATIONS = [
    anyaccel.DeepSpeedAccelerator,
    anyaccel.TorchAccelerator,
    anyaccel.CUDA_Accelerator,
    anyaccel.XPU_Accelerator,
    anyaccel.CPU_Accelerator,
]
PRIVATE_HELPERS = {"_pin_fresh", "_shape_numel", "_require_host_device"}


def _members() -> list[str]:
    return [name for name in vars(THEIRS) if not name.startswith("__") and name != "_abc_impl"]


def test_abstract_members_are_deepspeeds() -> None:
    assert anyaccel.DeepSpeedAccelerator.__abstractmethods__ == THEIRS.__abstractmethods__
    assert len(THEIRS.__abstractmethods__) == 65


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_every_member_has_deepspeeds_parameters(implementation: Any) -> None:
    for name in set(_members()) - PRIVATE_HELPERS:
        theirs = vars(THEIRS)[name]
        if not inspect.isfunction(theirs):
            continue
        ours = inspect.getattr_static(implementation, name)
        their_names = list(inspect.signature(theirs).parameters)
        our_names = list(inspect.signature(ours).parameters)
        assert our_names[: len(their_names)] == their_names, name


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_nothing_public_is_missing_or_unexpected(implementation: Any) -> None:
    public = {name for name in dir(implementation) if not name.startswith("_")}
    wanted = {name for name in _members() if not name.startswith("_")}
    theirs_of_the_cpu = {"get_rss", "reset_rss"} if implementation is anyaccel.CPU_Accelerator else set()
    assert wanted | OWN_ADDITIONS | theirs_of_the_cpu | {"communication_backend_version"} == public


def test_every_member_is_typed_and_documented() -> None:
    for name, member in vars(anyaccel.DeepSpeedAccelerator).items():
        if name.startswith("_") or not (inspect.isfunction(member) or isinstance(member, property)):
            continue
        function = member.fget if isinstance(member, property) else member
        assert member.__doc__, name
        signature = inspect.signature(function)
        assert signature.return_annotation is not inspect.Signature.empty, name
        typed = [p.annotation is not inspect.Parameter.empty for p in list(signature.parameters.values())[1:]]
        assert all(typed), name


def test_leaf_bodies_differ_from_what_they_override() -> None:
    """A leaf body that equals the base's should be deleted."""
    for leaf in (anyaccel.CUDA_Accelerator, anyaccel.XPU_Accelerator, anyaccel.CPU_Accelerator):
        for name, member in vars(leaf).items():
            base = getattr(anyaccel.TorchAccelerator, name, None)
            if inspect.isfunction(member) and inspect.isfunction(base) and name != "__init__":
                assert member.__code__.co_code != base.__code__.co_code or (
                    member.__code__.co_consts != base.__code__.co_consts
                    or member.__code__.co_names != base.__code__.co_names
                ), f"{leaf.__name__}.{name}"
