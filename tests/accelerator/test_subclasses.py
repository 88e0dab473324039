"""Accelerators of other packages: classes derived from ours, and objects that only have the members."""

from __future__ import annotations

import copy
import pickle
import types
from typing import Any
from unittest import mock

import pytest
import torch

import anyaccel
from anyaccel.accelerator.errors import NotAnAcceleratorError, UnsupportedError
from anyaccel.accelerator.host_streams import Event, Stream
from anyaccel.testing import AcceleratorContract

Abstract = anyaccel.DeepSpeedAccelerator.__abstractmethods__


class Counted(anyaccel.CPU_Accelerator):
    """A class with a default for an attribute, which an instance has set otherwise."""

    ranks = 1

    def __init__(self, ranks: int = 1) -> None:
        super().__init__()
        self.ranks = ranks


def test_a_copy_keeps_attributes_that_the_class_has_too() -> None:
    made = Counted(8)
    made.supports_nvtx_domain = True
    for copied in (pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made)):
        assert (copied.ranks, copied.supports_nvtx_domain) == (8, True)
        assert copied.manual_seed(3) is not None


def without_constructor() -> anyaccel.DeepSpeedAccelerator:
    """Return an instance whose ``__init__`` does not call ours, as deepspeed's own classes do."""
    members: dict[str, Any] = dict.fromkeys(Abstract, lambda self, *_: None)
    members.update(__init__=lambda self: None, device_name=lambda self, index=None: "mine")
    made: anyaccel.DeepSpeedAccelerator = type("Mine", (anyaccel.DeepSpeedAccelerator,), members)()
    return made


def test_a_class_that_does_not_call_our_constructor_is_used_and_the_one_before_is_back() -> None:
    before = anyaccel.get_accelerator()
    with anyaccel.use_accelerator(without_constructor()) as used:
        assert used._name == "mine"
        assert anyaccel.get_accelerator() is used
    assert anyaccel.get_accelerator() is before


class Logged:
    """Passes every member on."""

    def __init__(self) -> None:
        self.inner = anyaccel.CPU_Accelerator()

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


def test_an_object_that_passes_its_members_on_is_taken() -> None:
    anyaccel.set_accelerator(Logged())
    assert anyaccel.get_accelerator().pin_empty(3, dtype=torch.float32).shape == (3,)
    assert anyaccel.get_accelerator()._name == "cpu"


class Slotted:
    __slots__ = ()


def test_an_object_without_attributes_of_its_own_is_refused() -> None:
    made = type("Fixed", (Slotted,), {"__slots__": (), **dict.fromkeys(Abstract, lambda self, *_: "fixed")})()
    before = anyaccel.get_accelerator()
    with pytest.raises(NotAnAcceleratorError, match="whose attributes cannot be set"):
        anyaccel.set_accelerator(made)
    assert anyaccel.get_accelerator() is before


def test_an_adopted_object_gets_what_its_class_lacks_bound_as_it_is() -> None:
    """A function, a static one, and data: what deepspeed's class has in place of ours."""
    inner = anyaccel.CPU_Accelerator()
    members = {
        name: lambda self, *given, _name=name, **named: getattr(inner, _name)(*given, **named) for name in Abstract
    }
    adopted: Any = type("Duck", (), members)()
    static = staticmethod(lambda device: "checked")
    with mock.patch.object(anyaccel.DeepSpeedAccelerator, "_require_later", static, create=True):
        anyaccel.set_accelerator(adopted)
    assert adopted._require_later("cpu") == "checked"
    assert adopted._torch_pins_host_memory is anyaccel.DeepSpeedAccelerator._torch_pins_host_memory


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """A device's module with almost nothing in it."""
    module = types.SimpleNamespace(is_available=lambda: True, device_count=lambda: 1)
    monkeypatch.setattr(torch, "get_device_module", lambda name: module)
    return module


class Toy(anyaccel.TorchAccelerator):
    """Has itself what its module lacks."""

    Stream = Stream
    Event = Event

    def __init__(self) -> None:
        super().__init__("toyx")

    def communication_backend_name(self) -> str:
        return "toyccl"

    def current_device(self) -> int:
        return 2

    def set_device(self, device_index: Any) -> None:
        self.chosen = device_index

    def memory_reserved(self, device_index: int | None = None) -> int:
        return 7

    def max_memory_reserved(self, device_index: int | None = None) -> int:
        return 9

    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        self.is_reset = True

    def mem_get_info(self, device_index: int | None = None) -> tuple[int, int]:
        return 3, 4

    def get_device_properties(self, device_index: int | None = None) -> dict[str, Any]:
        return {"name": "toy", "total_memory": 4}

    def manual_seed(self, seed: int) -> int:
        return seed


DERIVED = {
    "memory_cached": 7, "max_memory_cached": 9, "reset_max_memory_allocated": None, "reset_max_memory_cached": None,
    "available_memory": 3, "total_memory": 4, "current_device_name": "toyx:2",
}  # fmt: skip


@pytest.mark.parametrize("member", DERIVED)
def test_a_member_that_calls_others_works_where_a_subclass_has_those(member: str, toy: Any) -> None:
    plain, own = anyaccel.TorchAccelerator("toyx"), Toy()
    assert not plain.supports(member)
    with pytest.raises(NotImplementedError, match=r"'toyx', which has no torch\.toyx"):
        getattr(plain, member)()
    assert own.supports(member)
    assert getattr(own, member)() == DERIVED[member]


def test_seeds_and_guards_that_a_subclass_makes_possible(toy: Any) -> None:
    own = Toy()
    assert own.manual_seed_all(3) == 3
    assert all(map(own.supports, ("seed", "seed_all", "manual_seed_all", "device_guard")))
    with own.device_guard(1):
        assert own.chosen == 1
    assert own.chosen == 2
    assert not anyaccel.TorchAccelerator("toyx").supports("device_guard")


@pytest.mark.parametrize("member", ["Stream", "Event", "communication_backend_name"])
def test_what_a_subclass_defines_is_supported(member: str, toy: Any) -> None:
    assert Toy().supports(member)
    assert not anyaccel.TorchAccelerator("toyx").supports(member)


def test_members_of_a_subclass_alone_are_supported() -> None:
    assert anyaccel.CPU_Accelerator().supports("get_rss")
    made = type("Mine", (anyaccel.CUDA_Accelerator,), {"power_draw": lambda self: 3})()
    assert made.supports("power_draw")
    with pytest.raises(AttributeError):
        made.supports("no_such_member")


def test_a_graph_needs_its_class(toy: Any) -> None:
    toy.graph = mock.Mock()
    assert not anyaccel.TorchAccelerator("toyx").supports("create_graph")
    toy.TOYXGraph = mock.Mock()
    assert anyaccel.TorchAccelerator("toyx").supports("create_graph")


def test_generators_are_asked_by_number_or_for_the_current_device(toy: Any) -> None:
    toy.get_rng_state = mock.Mock(return_value="state")
    toy.set_rng_state = mock.Mock()
    accelerator = anyaccel.TorchAccelerator("toyx")
    for index in (None, 1, "toyx:1"):
        accelerator.set_rng_state(accelerator.get_rng_state(index), index)
    assert [each.args for each in toy.get_rng_state.call_args_list] == [(), (1,), ("toyx:1",)]
    assert [each.args for each in toy.set_rng_state.call_args_list] == [("state",), ("state", 1), ("state", "toyx:1")]


class WithoutStreams(anyaccel.CPU_Accelerator):
    """Refuses streams as the contract asks; what is checked with streams is not called unsupported."""

    @property
    def Stream(self) -> Any:
        member = "Stream"
        raise UnsupportedError(member, "cpu", "streams")

    def stream(self, stream: Any) -> Any:
        member = "stream"
        raise UnsupportedError(member, "cpu", "streams")

    def supports(self, member: str) -> bool:
        return member not in ("Stream", "stream", "set_stream") and super().supports(member)


class TestWithoutStreams(AcceleratorContract):
    @pytest.fixture
    def accelerator(self) -> anyaccel.DeepSpeedAccelerator:
        return WithoutStreams()
