"""TypedTensor has the constructor of torch's own tensor types."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from anyaccel.accelerator.typed_tensor import TypedTensor

ARGUMENTS = [(), (3, 4), (0,), ([1.0, 2.0],), ([[1, 2], [3, 4]],), ((5, 6),), (torch.Size([2, 3]),), (range(3),), ([],)]


@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("name", ["FloatTensor", "LongTensor", "ByteTensor"])
def test_constructs_like_torchs(name: str, arguments: tuple[object, ...]) -> None:
    theirs = getattr(torch, name)(*arguments)
    ours = TypedTensor(theirs.dtype, "cpu")(*arguments)
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    if arguments and not isinstance(arguments[0], int | torch.Size):
        assert torch.equal(ours, theirs)


def test_deepspeeds_form_reads_sizes_as_values() -> None:
    """The form that it replaces: functools.partial(torch.tensor, …) cannot take sizes at all."""
    with pytest.raises(TypeError):
        torch.tensor(3, 4, dtype=torch.float)  # type: ignore[misc]
    assert TypedTensor(torch.float32, "meta")(3, 4).device.type == "meta"


@pytest.mark.parametrize("arguments", [(2.5,), (True,), (2, 3.0), (torch.ones(2, dtype=torch.int64),), (object(),)])
def test_refuses_what_torch_refuses(arguments: tuple[object, ...]) -> None:
    with pytest.raises(TypeError):
        torch.FloatTensor(*arguments)
    with pytest.raises(TypeError, match="failed: got"):
        TypedTensor(torch.float32, "cpu")(*arguments)


def test_numpys_whole_numbers_are_sizes() -> None:
    assert TypedTensor(torch.float32, "cpu")(np.int64(3), 4).shape == (3, 4)
    assert TypedTensor(torch.float32, "cpu")(np.array(3.0).reshape(1)).tolist() == [3.0]


def test_a_tensor_of_the_type_is_aliased() -> None:
    tensor = torch.ones(3)
    assert TypedTensor(torch.float32, "cpu")(tensor).data_ptr() == tensor.data_ptr()


def test_isinstance_asks_for_dtype_and_device() -> None:
    on_meta = TypedTensor(torch.float32, "meta")
    assert isinstance(torch.ones(1, device="meta"), on_meta)  # type: ignore[arg-type]
    assert not isinstance(torch.ones(1), on_meta)  # type: ignore[arg-type]
    assert not isinstance(torch.ones(1, device="meta", dtype=torch.int8), on_meta)  # type: ignore[arg-type]
    assert not isinstance("text", on_meta)  # type: ignore[arg-type]


def test_compares_and_shows_itself() -> None:
    assert TypedTensor(torch.int8, "xpu:1") == TypedTensor(torch.int8, "xpu:1")
    assert len({TypedTensor(torch.int8, "xpu"), TypedTensor(torch.int8, "cuda")}) == 2
    assert TypedTensor(torch.int8, "xpu") != "xpu"
    assert repr(TypedTensor(torch.int8, "xpu")) == "TypedTensor(torch.int8, 'xpu')"
