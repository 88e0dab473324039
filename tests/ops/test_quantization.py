"""The op `quantization` against its reference, on every implementation available here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from .compare import DTYPES, normal, opcheck
from .quantization_reference import quantize, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator

BUILDER = "QuantizationBuilder"
SHAPES = [
    ((1, 2), 1),
    ((4, 6), 4),
    ((2, 192), 2),
    ((3, 2, 262), 6),
    ((8, 1024), 16),
    ((600, 64), 600),
    ((1, 131_072), 1),
]


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(("shape", "groups"), SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("symmetric", [True, False])
def test_integers_agree_with_the_reference(
    op: Any, shape: tuple[int, ...], groups: int, dtype: torch.dtype, bits: int, symmetric: bool
) -> None:
    x = normal(*shape, dtype=dtype, device=op.device)
    q, params = op.functions.quantize(x, groups, bits, symmetric=symmetric)
    codes, exact = quantize(x.cpu(), groups, bits, symmetric)
    assert q.dtype == torch.int8
    assert q.shape == (*shape[:-1], shape[-1] * bits // 8)
    torch.testing.assert_close(params.cpu().double(), exact, rtol=1e-6, atol=1e-7)
    mine = unpack(q.cpu(), bits)
    assert (mine - codes.flatten()).abs().max() <= 1
    assert (mine == codes.flatten()).double().mean() > 0.999 or x.numel() < 1000  # ties within float32's rounding
    back = op.functions.dequantize(q, params, bits, dtype=torch.float32)
    assert back.shape == x.shape
    step = exact[:, :1].repeat_interleave(x.numel() // groups, 1).view(shape)
    # the upper end of the range does not have its own code
    assert ((back.cpu() - x.cpu().double()).abs() <= step * 1.01 + 1e-6).all()
    offset = exact[:, 1:] if not symmetric else 0.0
    expected = (mine.view(groups, -1) * exact[:, :1] + offset).view(shape)
    torch.testing.assert_close(back.cpu().double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("poisoned", "two_threads")
@pytest.mark.parametrize("columns", [32_768, 40_002])
@pytest.mark.parametrize("past", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_large_group_in_parts_agrees_with_its_reference(
    op: Any, columns: int, past: int, dtype: torch.dtype
) -> None:
    """The whole device works on it, for any size of the last part and any start of the memory."""
    x = normal(columns + past, dtype=dtype, device=op.device)[past:].view(1, columns)
    x[0, -1] = 9.0  # the extremes are in different parts
    x[0, 0] = -11.0
    for bits, symmetric in ((8, True), (8, False), (4, True), (4, False)):
        q, params = op.functions.quantize(x, 1, bits, symmetric=symmetric)
        codes, exact = quantize(x.cpu(), 1, bits, symmetric)
        torch.testing.assert_close(params.cpu().double(), exact, rtol=1e-6, atol=1e-7)
        mine = unpack(q.cpu(), bits)
        assert (mine - codes.flatten()).abs().max() <= 1
        assert (mine == codes.flatten()).double().mean() > 0.999
    q, scales = op.functions.quantize_float8(x, 1)
    assert scales.item() == pytest.approx(11.0 / 448.0)
    expected = (x.float().cpu() * torch.div(torch.tensor(448.0), 11.0)).to(torch.float8_e4m3fn)
    assert torch.equal(q.cpu().view(torch.uint8), expected.view(torch.uint8))
    x[0, columns // 2] = torch.nan
    assert op.functions.dequantize(*op.functions.quantize(x, 1)).isnan().all()
    assert op.functions.dequantize_float8(*op.functions.quantize_float8(x, 1)).isnan().sum() == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_result_has_the_dtype_that_is_asked_for(op: Any, dtype: torch.dtype) -> None:
    x = normal(4, 64, dtype=torch.float32, device=op.device)
    q, params = op.functions.quantize(x, 4)
    back = op.functions.dequantize(q, params, dtype=dtype)
    assert back.dtype == dtype
    torch.testing.assert_close(back.float(), op.functions.dequantize(q, params), rtol=1e-2, atol=1e-2)


def test_the_even_element_is_in_the_high_nibble(op: Any) -> None:
    q, params = op.functions.quantize(torch.tensor([[7.0, -8.0, 1.0, 0.0]], device=op.device), 1, 4)
    assert params.item() == 1.0
    assert [byte & 255 for byte in q.flatten().tolist()] == [0x78, 0x10]
    assert op.functions.dequantize(q, params, 4).tolist() == [[7.0, -8.0, 1.0, 0.0]]


def test_ties_go_to_even(op: Any) -> None:
    x = torch.tensor([[-128.0, 0.5, 1.5, 2.5, -0.5, -1.5]], device=op.device)
    assert op.functions.quantize(x, 1)[0].tolist() == [[-128, 0, 2, 2, 0, -2]]


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [8, 4])
def test_constant_groups_come_back_exactly_or_within_a_step(op: Any, symmetric: bool, bits: int) -> None:
    x = torch.tensor([[0.0] * 4, [3.0] * 4, [-2.0] * 4], device=op.device)
    q, params = op.functions.quantize(x, 3, bits, symmetric=symmetric)
    back = op.functions.dequantize(q, params, bits)
    assert (back[0] == 0).all()
    assert (back[2] == -2).all()
    assert ((back[1] - 3).abs() <= (0 if not symmetric else 3 / 2 ** (bits - 1))).all()


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_group_that_is_not_finite_becomes_nan_and_the_others_stay(op: Any, symmetric: bool, value: float) -> None:
    x = normal(3, 64, dtype=torch.float32, device=op.device)
    x[1, 5] = value
    back = op.functions.dequantize(*op.functions.quantize(x, 3, symmetric=symmetric))
    assert back[1].isnan().all()
    assert back[[0, 2]].isfinite().all()


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(("shape", "groups"), SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("float8", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_floats_agree_with_torchs_conversion(
    op: Any, shape: tuple[int, ...], groups: int, dtype: torch.dtype, float8: torch.dtype
) -> None:
    x = normal(*shape, dtype=dtype, device=op.device)
    q, scales = op.functions.quantize_float8(x, groups, float8)
    rows = x.float().cpu().view(groups, -1)
    largest = torch.finfo(float8).max
    torch.testing.assert_close(scales.cpu(), rows.abs().amax(1) / largest, rtol=1e-6, atol=0)
    expected = (rows * torch.div(torch.tensor(largest), rows.abs().amax(1, keepdim=True))).to(float8).view(shape)
    assert q.dtype == float8
    assert torch.equal(q.cpu().view(torch.uint8), expected.view(torch.uint8))
    back = op.functions.dequantize_float8(q, scales)
    torch.testing.assert_close(back.cpu(), (expected.float().view(groups, -1) * scales.cpu()[:, None]).view(shape))


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [2, 70, 300])
def test_every_format_is_decoded_to_every_dtype_that_agrees(op: Any, dtype: torch.dtype, columns: int) -> None:
    x = normal(3, columns, dtype=dtype, device=op.device)
    for bits in (8, 4):
        q, params = op.functions.quantize(x, 3, bits)
        wide = op.functions.dequantize(q, params, bits)
        assert torch.equal(op.functions.dequantize(q, params, bits, dtype=dtype), wide.to(dtype))
    for float8 in (torch.float8_e4m3fn, torch.float8_e5m2):
        q, scales = op.functions.quantize_float8(x, 3, float8)
        wide = op.functions.dequantize_float8(q, scales)
        assert torch.equal(op.functions.dequantize_float8(q, scales, dtype=dtype), wide.to(dtype))


@pytest.mark.parametrize("columns", [32, 300])
@pytest.mark.parametrize("at", [0, 5, 31])
def test_a_nan_leaves_the_other_floats_of_its_group_as_they_were(op: Any, columns: int, at: int) -> None:
    x = torch.arange(columns, dtype=torch.float32, device=op.device)[None]
    x[0, at] = torch.nan
    expected = x.clone()
    expected[0, at] = 0
    codes, scales = (tensor.cpu() for tensor in op.functions.quantize_float8(x, 1, torch.float8_e4m3fn))
    others = torch.arange(columns) != at
    wanted = (expected.cpu()[0] * (448 / expected.max().cpu())).to(torch.float8_e4m3fn).float()
    assert torch.equal(codes.float()[0, others], wanted[others])
    assert codes.float()[0, at].isnan()
    assert scales.item() == pytest.approx(expected.max().item() / 448)


@pytest.mark.parametrize("float8", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_every_code_is_decoded_as_torch_does(op: Any, float8: torch.dtype) -> None:
    codes = torch.arange(256, dtype=torch.uint8, device=op.device).view(float8)
    decoded = op.functions.dequantize_float8(codes, torch.ones(1, device=op.device))
    torch.testing.assert_close(decoded, codes.float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("float8", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_every_rounding_is_torchs(op: Any, float8: torch.dtype) -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(float8).float()
    finite = codes[codes.isfinite()].unique()
    largest = finite.max()
    middles = (finite[1:] + finite[:-1]) / 2
    x = torch.cat(
        [largest[None], finite, middles, torch.nextafter(middles, largest), torch.nextafter(middles, -largest)]
    )
    q, scales = op.functions.quantize_float8(x.to(op.device)[None], 1, float8)
    assert scales.item() == 1.0
    assert torch.equal(q.cpu()[0].float(), x.to(float8).float())


@pytest.mark.parametrize("dtype", DTYPES)
def test_misaligned_memory_gives_the_same(op: Any, dtype: torch.dtype) -> None:
    aligned = normal(4, 64, dtype=dtype, device=op.device)
    shifted = torch.cat([aligned.flatten()[:1], aligned.flatten()])[1:].view(4, 64)
    for bits in (8, 4):
        for mine, expected in zip(
            op.functions.quantize(shifted, 4, bits), op.functions.quantize(aligned, 4, bits), strict=True
        ):
            assert torch.equal(mine, expected)


MAGNITUDES = [1e-45, 1e-40, 3e-38, 3e-37, 1e-34, 1e-30, 1.0, 1e30, 1e38, 3e38]


@pytest.mark.parametrize("magnitude", MAGNITUDES)
def test_groups_of_every_magnitude_come_back(op: Any, magnitude: float) -> None:
    """Their scales are normal floats, and 0 stays 0: the inverse of a smaller scale would be infinite."""
    x = torch.tensor([0.0, 1.0, -0.5, 0.25] * 4, device=op.device) * magnitude
    tiny = torch.finfo(torch.float32).tiny
    for symmetric in (True, False):
        q, params = op.functions.quantize(x, 2, symmetric=symmetric)
        back = op.functions.dequantize(q, params)
        assert bool((params[:, 0] >= tiny).all())
        assert float((back - x).abs().max()) <= 0.51 * max(2 * magnitude / 256, tiny) * 2
    for float8 in (torch.float8_e4m3fn, torch.float8_e5m2):
        codes, scales = op.functions.quantize_float8(x, 2, dtype=float8)
        back = op.functions.dequantize_float8(codes, scales)
        assert bool((scales >= tiny).all())
        assert float((back - x).abs().max()) <= max(magnitude / 8, tiny)
        assert not back[::4].any()


def test_groups_without_elements_have_a_scale_of_one(op: Any) -> None:
    x = torch.empty(0, device=op.device)
    for params in (op.functions.quantize(x, 2)[1], op.functions.quantize_float8(x, 2)[1]):
        assert params.flatten().tolist() == [1.0, 1.0]


def test_groups_without_elements_have_an_offset_of_zero(op: Any) -> None:
    _, params = op.functions.quantize(torch.empty(0), 2, symmetric=False)
    assert params.tolist() == [[1.0, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize("float8", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_a_processor_that_flushes_subnormal_numbers_decodes_every_code(op: Any, float8: torch.dtype) -> None:
    q = torch.arange(256, dtype=torch.uint8).view(float8)
    expected = q.float()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the setting is this thread's
    try:
        assert torch.set_flush_denormal(True)
        decoded = op.functions.dequantize_float8(q, torch.ones(1))
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)
    torch.testing.assert_close(decoded, expected, rtol=0, atol=0, equal_nan=True)


def test_strided_input_is_taken(op: Any) -> None:
    x = normal(64, 4, dtype=torch.float32, device=op.device).t()
    for mine, expected in zip(op.functions.quantize(x, 4), op.functions.quantize(x.contiguous(), 4), strict=True):
        assert torch.equal(mine, expected)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda f, x: f.quantize(x, 3), "quantize failed: got groups 3 for 32 elements"),
        (lambda f, x: f.quantize(x, 0), "quantize failed: got groups 0 for"),
        (lambda f, x: f.quantize(x, 2, 5), "quantize failed: got bits 5; expected 4 or 8"),
        (lambda f, x: f.quantize(x[:, :3], 4, 4), "quantize failed: got x of shape .* two elements share a byte"),
        (lambda f, x: f.quantize(x.double(), 2), "quantize failed: got x of float64; expected float32"),
        (lambda f, x: f.dequantize(x, x[:, :1]), "dequantize failed: got q of float32; expected int8"),
        (lambda f, x: f.dequantize(x.char(), x[:3, :1]), "dequantize failed: got groups 3 for 32 elements"),
        (lambda f, x: f.dequantize(x.char(), x[:4, :1], dtype=torch.int32), "got dtype of int32"),
        (lambda f, x: f.dequantize_float8(x.char(), x[0]), "dequantize_float8 failed: got q of int8"),
        (lambda f, x: f.quantize_float8(x, 5), "quantize_float8 failed: got groups 5"),
    ],
)
def test_wrong_arguments_are_named(op: Any, call: Any, said: str) -> None:
    with pytest.raises(RuntimeError, match=said):
        call(op.functions, torch.zeros(4, 8, device=op.device))


def test_another_float8_is_refused(op: Any) -> None:
    with pytest.raises(ValueError, match=r"got dtype torch\.float16; expected one of"):
        op.functions.quantize_float8(torch.zeros(2, 2, device=op.device), 1, torch.float16)


def test_opcheck_and_compile(op: Any) -> None:
    space = op.space
    x = torch.randn(4, 8, device=op.device)
    opcheck(space.quantize.default, (x, 4, 4, False))
    opcheck(space.dequantize.default, (x.char(), x[:, :1].contiguous(), 4, 8, True, torch.float16))
    opcheck(space.quantize_float8.default, (x, 4, True))
    compiled = torch.compile(
        lambda x: op.functions.dequantize(*op.functions.quantize(x, 4)), fullgraph=True, backend="aot_eager"
    )
    assert torch.equal(compiled(x), op.functions.dequantize(*op.functions.quantize(x, 4)))


def test_a_byte_without_dimensions_is_not_two_elements(op: Any) -> None:
    space = op.space
    q, params = torch.ones((), dtype=torch.int8, device=op.device), torch.ones(1, 1, device=op.device)
    with pytest.raises(RuntimeError, match=r"dequantize failed: got q of shape \(\); expected bytes of two elements"):
        space.dequantize(q, params, 1, 4, True, torch.float32)
    assert space.dequantize(q, params, 1, 8, True, torch.float32).item() == 1
