"""deepspeed's buffers for ragged batches: views of bytes, each compared with the same view made by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anyaccel import get_accelerator


@pytest.fixture
def ragged() -> Any:
    return get_accelerator().create_op_builder("RaggedUtilsBuilder").load()


def test_a_mirror_has_shape_and_dtype_on_the_host(ragged: Any) -> None:
    mirror = ragged.allocate_fast_host_buffer(torch.empty(3, 5, dtype=torch.int32, device="meta"))
    assert (mirror.shape, mirror.dtype, mirror.device.type) == ((3, 5), torch.int32, "cpu")
    assert mirror.fill_(7).sum() == 105


def test_views_share_the_buffers_bytes(ragged: Any) -> None:
    buffer = torch.arange(64, dtype=torch.uint8)
    like = torch.empty(2, 3, dtype=torch.int16).t()
    view = ragged.allocate_view_on(like, buffer, 4)
    assert (view.shape, view.stride(), view.dtype) == (like.shape, like.stride(), torch.int16)
    assert torch.equal(view, buffer[4:16].view(torch.int16).as_strided((3, 2), (1, 3)))
    view.zero_()
    assert buffer[4:16].sum() == 0
    assert buffer[3] == 3
    again = ragged.allocate_view_like((2,), (2,), torch.empty(0, dtype=torch.int32), buffer[8:], 8)
    assert torch.equal(again, buffer[16:].view(torch.int32)[[0, 2]])
    del buffer
    assert again.tolist() == [0x13121110, 0x1B1A1918]
    assert ragged.allocate_view_like((0, 4), (4, 1), torch.empty(0), torch.empty(0), 0).numel() == 0


@pytest.mark.parametrize(
    ("shape", "strides", "offset"), [((4,), (1,), 4), ((3,), (1,), 2), ((1,), (1,), -4), ((2,), (-1,), 0)]
)
def test_what_lies_outside_is_refused(ragged: Any, shape: tuple[int], strides: tuple[int], offset: int) -> None:
    with pytest.raises(ValueError, match=r"allocate_view_like failed: got shape .* at byte .* of a buffer of 16 bytes"):
        ragged.allocate_view_like(shape, strides, torch.empty(0), torch.zeros(4), offset)


def test_a_buffer_whose_bytes_lie_apart_is_refused(ragged: Any) -> None:
    with pytest.raises(ValueError, match=r"expected .* contiguous bytes or more"):
        ragged.allocate_view_on(torch.empty(2), torch.zeros(8)[::2], 0)


def test_a_buffer_between_elements_is_refused(ragged: Any) -> None:
    with pytest.raises(ValueError, match="an offset in whole elements, also of the buffer in its storage"):
        ragged.allocate_view_on(torch.empty(2), torch.empty(17, dtype=torch.uint8)[1:], 0)
