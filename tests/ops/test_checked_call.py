"""Checks for the arguments of every op, shown on one that writes a tensor and on one that writes lists."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
import torch

from .conftest import KINDS, PRESENT, Implementation, load

BUILDER = "RotaryEmbeddingBuilder"


def _at_byte(byte: int, *shape: int) -> torch.Tensor:
    """Return float32 zeros on the CPU whose address is one byte past a multiple of four."""
    count = torch.Size(shape).numel()
    memory = bytearray(4 * count + 4)
    return torch.frombuffer(memory, dtype=torch.float32, count=count, offset=byte).view(shape)


@pytest.fixture(params=[kind for kind in KINDS if kind not in PRESENT])
def multi(request: pytest.FixtureRequest) -> Implementation:
    return load(request.param, "MultiTensorBuilder")


def _tables(op: Any) -> list[torch.Tensor]:
    return [torch.zeros(3, 2, device=op.device) for _ in range(2)]


def test_a_misaligned_tensor_is_refused(op: Any) -> None:
    if op.device != "cpu":
        pytest.skip("only the CPU's memory can be taken at any byte")
    x = _at_byte(1, 1, 3, 2, 4)
    with pytest.raises(RuntimeError, match="got x at an odd address; expected a multiple of the 4 bytes of an element"):
        op.functions.rotary_embedding(x, *_tables(op))
    with pytest.raises(RuntimeError, match="got x at an odd address"):
        op.functions.rotary_embedding(x, *_tables(op), inplace=True)
    assert op.functions.rotary_embedding(x.clone(), *_tables(op)).shape == x.shape


def test_a_sliding_window_is_not_written(op: Any) -> None:
    memory = torch.ones(64, device=op.device)
    window = memory.as_strided((1, 3, 2, 4), (24, 4, 2, 1))
    with pytest.raises(RuntimeError, match=r"got x, whose elements share memory; .* Fix: pass x.clone\(\)"):
        op.functions.rotary_embedding(window, *_tables(op), inplace=True)
    assert (memory == 1).all()
    assert op.functions.rotary_embedding(window, *_tables(op)).shape == window.shape


@pytest.mark.parametrize("up", [torch.ones(8), torch.ones(2, 4, dtype=torch.float64), torch.ones(4, 2)])
def test_the_call_that_an_error_advises_works(up: torch.Tensor) -> None:
    swiglu, gate = load("cpu", "ActivationsBuilder").functions.swiglu, torch.ones(2, 4)
    with pytest.raises(RuntimeError, match="got up of ") as refused:
        swiglu(gate, up)
    advised = re.search(r"Fix: pass (up\..*)\.$", str(refused.value).splitlines()[0])
    assert advised is not None, refused.value
    assert torch.equal(swiglu(gate, eval(advised[1])), swiglu(gate, torch.ones(2, 4)))  # noqa: S307


def test_a_shape_that_no_reshape_gives_is_told_by_its_elements() -> None:
    with pytest.raises(RuntimeError, match=r"got up of shape \(7\); expected .* Fix: pass 8 elements; it has 7"):
        load("cpu", "ActivationsBuilder").functions.swiglu(torch.ones(2, 4), torch.ones(7))


def test_what_is_written_is_no_part_of_another_argument(op: Any) -> None:
    memory = torch.ones(64, device=op.device)
    x, cos, sin = memory[:24].view(1, 3, 2, 4), memory[20:26].view(3, 2), torch.ones(3, 2, device=op.device)
    with pytest.raises(RuntimeError, match="got x, which shares memory with cos; expected separate memory"):
        op.functions.rotary_embedding(x, cos, sin, inplace=True)
    assert (memory == 1).all()
    op.functions.rotary_embedding(x, memory[24:30].view(3, 2), sin, inplace=True)


def test_a_written_tensor_that_a_flag_negates_is_refused_before_the_writing(op: Any) -> None:
    """Torch's own fallback calls the op with a copy, and fails afterwards."""
    space = op.space
    memory = torch.ones(1, 3, 2, 4, device=op.device)
    for wrong in (torch._neg_view(memory), torch._efficientzerotensor((1, 3, 2, 4), device=op.device)):
        with pytest.raises(RuntimeError, match="rotary_embedding_ failed: got a tensor that a flag marks as negated"):
            space.rotary_embedding_(wrong, *_tables(op), False, False)
    assert (memory == 1).all()
    negated = op.functions.rotary_embedding(torch._neg_view(memory), *[table + 1 for table in _tables(op)])
    assert torch.equal(negated[..., 2:], torch.full((1, 3, 2, 2), -2.0, device=op.device))


def test_lists_may_share_a_tensor_only_at_one_place(multi: Any) -> None:
    a, b = torch.ones(5, device=multi.device), torch.ones(5, device=multi.device)
    multi.functions.scale([a, b], [a, b], 2.0)
    assert a.tolist() == b.tolist() == [2.0] * 5
    for inputs, outputs in (([a, b], [b, a]), ([a, a], [b, b]), ([a[:4]], [a[1:]]), ([a[::2]], [a[:3]])):
        with pytest.raises(RuntimeError, match="which shares memory with"):
            multi.functions.scale(inputs, outputs, 3.0)
    assert a.tolist() == b.tolist() == [2.0] * 5


def test_columns_of_one_matrix_share_no_memory(multi: Any) -> None:
    matrix = torch.ones(4, 6, device=multi.device)
    left, right = matrix.chunk(2, 1)
    multi.functions.scale([left, right], [left, right], 2.0)
    assert (matrix == 2).all()
    columns = [matrix[:, column] for column in range(6)]
    multi.functions.scale(columns[::2], columns[1::2], 3.0)
    assert matrix.tolist() == [[2.0, 6.0] * 3] * 4
    with pytest.raises(RuntimeError, match="which shares memory with"):
        multi.functions.scale([matrix[:, 0:3]], [matrix[:, 2:5]], 1.0)


def _places(view: torch.Tensor) -> set[int]:
    """Return the elements of the memory that a view has."""
    places = {view.storage_offset()}
    for size, stride in zip(view.shape, view.stride(), strict=True):
        places = {place + stride * step for place in places for step in range(size)}
    return places


def test_views_are_taken_only_if_they_share_no_element() -> None:
    """Columns, blocks and rows of one matrix, of any number of dimensions, beside views that do overlap."""
    multi = load("cpu", "MultiTensorBuilder").functions
    memory, draw = torch.zeros(400), random.Random(0)  # noqa: S311
    taken = refused = 0
    for _ in range(2000):
        views = []
        for _ in range(2):
            sizes = [draw.choice([1, 2, 3, 5]) for _ in range(draw.choice([1, 2, 3]))]
            strides = [draw.choice([1, 2, 4, 10, 20, 40]) for _ in sizes]
            views.append(memory.as_strided(sizes, strides, draw.randrange(30)))
        source = torch.ones_like(views[0])
        try:
            multi.scale([source, torch.ones_like(views[1])], views, 1.0)
        except RuntimeError as error:
            if "share" not in str(error):
                raise
            refused += 1
            continue
        assert not _places(views[0]) & _places(views[1])
        taken += 1
    assert min(taken, refused) > 300
    matrix = torch.ones(10, 4)
    multi.scale([torch.full((10,), 2.0), torch.full((10, 2), 3.0)], [matrix[:, 0], matrix[:, 1:3]], 1.0)
    assert matrix[0].tolist() == [2.0, 3.0, 3.0, 1.0]


@pytest.mark.parametrize("make", [lambda x: x.to_sparse(), lambda x: x.to_mkldnn(), lambda x: x.cfloat().conj()])
def test_tensors_without_plain_memory_are_refused(op: Any, make: Any) -> None:
    if op.device != "cpu":
        pytest.skip("torch has these on the CPU")
    with pytest.raises((RuntimeError, NotImplementedError)):
        op.functions.rotary_embedding(make(torch.ones(1, 3, 2, 4)), *_tables(op))


class _Elsewhere(torch.Tensor):
    """A tensor without memory that claims to be on a device, whether torch was built for the device or not."""

    @classmethod
    def __torch_dispatch__(cls, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("meta", "meta"),
        ("mps", "mps"),
        ("privateuseone:0", "privateuseone"),
        ("hpu:0", "a device of torch's type 15"),  # the stable ABI has no name for it
    ],
)
def test_a_device_without_kernels_is_named(device: str, name: str) -> None:
    """The dispatcher rejects such a tensor first; here it is passed to the CPU's function, like by a careless fallback."""
    load("cpu", "RMSNormBuilder")
    on_cpu = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    x = torch.Tensor._make_wrapper_subclass(_Elsewhere, (2, 3), dtype=torch.float32, device=torch.device(device))
    with pytest.raises(
        RuntimeError, match=rf"got a tensor on {name}; expected cpu, cuda or xpu. Fix: move it with tensor.to"
    ):
        torch.ops.anyaccel.rms_norm.default.redispatch(on_cpu, x, torch.ones(3), 1e-5)
