"""deepspeed's floats of 4 to 12 bits: codes against its kernel, written with integers; values, rounding and layout."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import torch

from anyaccel.op_builder.all_ops import builder_class

FORMATS = {
    (8, 3): (4, 3, 480.0),
    (8, 2): (5, 2, 114688.0),
    (12, 4): (4, 7, 510.0),
    (6, 2): (3, 2, 28.0),
    (4, 1): (2, 1, 6.0),
}
GROUP = 16
WORD = 2**32 - 1


@pytest.fixture(scope="module")
def floats() -> Any:
    cls: Any = builder_class("FPQuantizerBuilder", "cpu")
    return cls().load()


def _float32(value: float) -> float:
    found: float = struct.unpack("f", struct.pack("f", value))[0]
    return found


def _code(value: float, exponent_bits: int, mantissa_bits: int) -> int:
    """The steps of deepspeed's kernel on the bits of a scaled number."""
    (data,) = struct.unpack("I", struct.pack("f", value))
    sign, exponent, mantissa = data >> 31, (data >> 23) & 255, data & (2**23 - 1)
    dropped = 2 ** (23 - mantissa_bits) - 1
    mantissa += (dropped + 1) // 2
    exponent += mantissa & ~dropped == 2**23
    if exponent < 128 - (2 ** (exponent_bits - 1) - 1):
        exponent, mantissa = 128 - (2 ** (exponent_bits - 1) - 1), 0
    mantissa = (mantissa >> (23 - mantissa_bits)) & (2**mantissa_bits - 1)
    exponent = (exponent - 127 + 2 ** (exponent_bits - 1) - 1) & WORD
    return sign << (exponent_bits + mantissa_bits) | exponent << mantissa_bits | mantissa


def _row(codes: list[int], bits: int) -> bytes:
    """Eight codes at a time, as its kernel stores two words of 64 bits."""
    stored = b""
    for start in range(0, len(codes), 8):
        eight = codes[start : start + 8]
        if bits < 12:
            word = sum(code << (bits * i) for i, code in enumerate(eight))
            stored += word.to_bytes(8, "little")[:bits]
            continue
        first = sum(code << (12 * i) for i, code in enumerate(eight[:5]))
        second = sum(code << (12 * i) for i, code in enumerate(eight[5:]))
        stored += ((second & 15) << 60 | first).to_bytes(8, "little") + (second >> 4).to_bytes(8, "little")[:4]
    return stored


def _quantized(floats: Any, x: torch.Tensor, form: tuple[int, int], *, is_stochastic: bool = False) -> torch.Tensor:
    out = torch.zeros(x.numel() // GROUP, GROUP * form[0] // 8 + 4, dtype=torch.uint8)
    assert floats.quantize(out, x, GROUP, is_stochastic, *form) is out
    return out


def _restored(floats: Any, out: torch.Tensor, like: torch.Tensor, form: tuple[int, int]) -> torch.Tensor:
    back = torch.full_like(like, 7)
    floats.dequantize(back, out, GROUP, form[1], form[0] - form[1] - 1)
    return back


def _values(dtype: torch.dtype) -> torch.Tensor:
    """Groups of numbers of several magnitudes, none of them zero."""
    spread = torch.randn(40, GROUP) * 10.0 ** torch.randint(-3, 3, (40, GROUP))
    x = torch.cat([torch.randn(40, GROUP), spread, torch.rand(4, GROUP) + 1]).to(dtype)
    return torch.where(x == 0, torch.ones_like(x), x)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_codes_and_scales_are_deepspeeds(floats: Any, form: tuple[int, int], dtype: torch.dtype) -> None:
    exponent_bits, mantissa_bits, q_range = FORMATS[form]
    x = _values(dtype)
    out = _quantized(floats, x, form)
    for group, row in zip(x.tolist(), out, strict=True):
        largest = max(abs(value) for value in group)
        scale = _float32(q_range / largest)
        codes = [_code(_float32(value * scale), exponent_bits, mantissa_bits) for value in group]
        assert bytes(row.tolist()) == _row(codes, form[0]) + struct.pack("f", largest / q_range)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_every_code_has_its_value(floats: Any, form: tuple[int, int], dtype: torch.dtype) -> None:
    exponent_bits, mantissa_bits, _ = FORMATS[form]
    codes = [code for code in range(2 ** form[0]) if code >> mantissa_bits & (2**exponent_bits - 1)]
    codes += [codes[-1]] * (-len(codes) % GROUP)
    rows = [codes[start : start + GROUP] for start in range(0, len(codes), GROUP)]
    out = torch.tensor([list(_row(row, form[0]) + struct.pack("f", 0.125)) for row in rows], dtype=torch.uint8)
    back = _restored(floats, out, torch.empty(len(codes), dtype=dtype), form)
    bias = 2 ** (exponent_bits - 1) - 1
    for code, value in zip(codes, back.tolist(), strict=True):
        exponent = (code >> mantissa_bits) & (2**exponent_bits - 1)
        magnitude = 2.0 ** (exponent - bias) * (1 + (code & (2**mantissa_bits - 1)) / 2**mantissa_bits)
        assert value == (-1) ** (code >> (form[0] - 1)) * magnitude / 8


@pytest.mark.parametrize("form", FORMATS)
def test_numbers_come_back_within_half_a_step(floats: Any, form: tuple[int, int]) -> None:
    exponent_bits, mantissa_bits, q_range = FORMATS[form]
    x = _values(torch.bfloat16)
    back = _restored(floats, _quantized(floats, x, form), x, form).float()
    smallest = 2.0 ** (2 - 2 ** (exponent_bits - 1)) * x.float().abs().amax(1, keepdim=True) / q_range
    step = torch.maximum(x.float().abs() * 0.5**mantissa_bits, 2 * smallest)
    assert ((back - x.float()).abs() <= 0.51 * step + 0.01 * x.float().abs()).all()


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_a_group_that_is_not_finite_comes_back_as_nan_and_no_other_does(
    floats: Any, form: tuple[int, int], value: float
) -> None:
    x = torch.ones(2, GROUP)
    x[1, 3] = value
    back = _restored(floats, _quantized(floats, x, form), x, form)
    assert torch.equal(back[0], x[0])
    assert bool(back[1].isnan().all())


@pytest.mark.parametrize("form", FORMATS)
def test_zeros_come_back_as_zeros(floats: Any, form: tuple[int, int]) -> None:
    x = torch.randn(3, GROUP)
    x[0, 3] = x[1, ::2] = x[2] = 0.0
    x[1, 4] = -0.0
    back = _restored(floats, _quantized(floats, x, form), x, form)
    assert torch.equal(back == 0, x == 0)


@pytest.mark.parametrize("form", FORMATS)
def test_stochastic_rounding_is_right_on_average_and_takes_neighbours_only(floats: Any, form: tuple[int, int]) -> None:
    torch.manual_seed(0)
    exponent_bits, mantissa_bits, q_range = FORMATS[form]
    one = torch.rand(GROUP) + 1.0
    one[0] = q_range / 2 ** (2 ** (exponent_bits - 1) - 2)  # the largest, so that the rest is in one binade or the next
    one[1:] = one[1:].clamp(max=float(one[0]))
    x = one.repeat(4000, 1)
    back = _restored(floats, _quantized(floats, x, form, is_stochastic=True), x, form)
    nearest = _restored(floats, _quantized(floats, x, form), x, form)[0]
    step = 2.0 * 0.5**mantissa_bits
    assert ((back - one).abs() < step * 1.001).all()
    assert ((back.mean(0) - one).abs() < step * 0.05).all()
    assert (back[:, 0] == nearest[0]).all()
    assert len(back[:, 1:].unique()) > 2


def test_parts_are_restored_alone(floats: Any) -> None:
    x = torch.randn(5, 4, 2 * GROUP).bfloat16()
    out = _quantized(floats, x, (6, 2))
    whole, some = _restored(floats, out, x, (6, 2)), torch.empty(2, 4, 2 * GROUP, dtype=torch.bfloat16)
    floats.selective_dequantize(some, out, torch.tensor([4, 1], dtype=torch.int32), GROUP, 2, 3)
    assert torch.equal(some, whole[[4, 1]])
    one, row = torch.ones(1, 8), torch.empty(1, 10, dtype=torch.uint8)  # a row that ends where no float32 begins
    floats.quantize(row, one, 8, False, 6, 2)
    for call in (
        lambda: floats.dequantize(one.zero_(), row, 8, 2, 3),
        lambda: floats.selective_dequantize(one.zero_(), row, torch.tensor([0]), 8, 2, 3),
    ):
        call()
        assert one.tolist() == [[1.0] * 8]
    with pytest.raises(IndexError, match=r"got parts \[5, 1\] of 8 groups each"):
        floats.selective_dequantize(some, out, torch.tensor([5, 1]), GROUP, 2, 3)


def test_nothing_is_quantized_and_what_does_not_fit_is_refused(floats: Any) -> None:
    x, out = torch.randn(2, GROUP), torch.zeros(2, GROUP + 4, dtype=torch.uint8)
    assert floats.quantize(out[:0], x[:0], GROUP, False, 8, 3).shape == (0, GROUP + 4)
    assert floats.get_scales(out, 2).shape == (2, 1)
    with pytest.raises(NotImplementedError, match="got 6 bits with a mantissa of 3"):
        floats.quantize(out, x, GROUP, False, 6, 3)
    with pytest.raises(ValueError, match=r"for 32 elements in groups of 16; .*group size \* 6 / 8"):
        floats.quantize(out, x, GROUP, False, 6, 2)
    with pytest.raises(ValueError, match="a multiple of 8"):
        floats.quantize(out, x, 4, False, 8, 3)
    with pytest.raises(RuntimeError, match="share memory"):
        floats.quantize(out[:1].expand(2, -1), x, GROUP, False, 8, 3)
    with pytest.raises(RuntimeError, match="share memory"):
        floats.dequantize(x[:1].expand(2, -1), out, GROUP, 3, 4)


def test_on_nvidias_gpus_deepspeeds_own_is_taken() -> None:
    assert builder_class("FPQuantizerBuilder", "cuda") is None
