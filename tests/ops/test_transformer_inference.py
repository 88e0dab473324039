"""deepspeed's module of transformer inference: each function against its definition, in float64 or written out."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F

from anyaccel.op_builder.all_ops import builder_class

if TYPE_CHECKING:
    from collections.abc import Callable

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
SUFFIX = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
BATCH, TOKENS, CHANNELS, INNER, HEADS = 2, 3, 16, 32, 4
NO_SCALE = torch.empty(1)


@pytest.fixture(scope="module")
def ops() -> Any:
    cls: Any = builder_class("InferenceBuilder", "cpu")
    return cls().load()


def _x(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.randn(shape or (BATCH, TOKENS, CHANNELS)).to(dtype)


def _layer_norm(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x.double(), gamma.shape, gamma.double(), beta.double(), 1e-5)


def _rms_norm(x: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    return x.double() / (x.double().pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * gamma.double()


def _assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    limit = {torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}[found.dtype]
    torch.testing.assert_close(found.double(), expected.double(), rtol=limit, atol=limit)


@pytest.mark.parametrize("dtype", DTYPES)
def test_norms(ops: Any, dtype: torch.dtype) -> None:
    x, residual, bias, gamma, beta = _x(dtype), _x(dtype), *(_x(dtype, CHANNELS) for _ in range(3))
    _assert_close(ops.layer_norm(x, gamma, beta, 1e-5), _layer_norm(x, gamma, beta))
    _assert_close(ops.rms_norm(x, gamma, 1e-5), _rms_norm(x, gamma))
    _assert_close(ops.rms_norm(x[0], gamma, 1e-5), _rms_norm(x[0], gamma))
    total = x.double() + residual.double() + bias.double()
    _assert_close(ops._layer_norm_residual(x, bias, residual, gamma, beta, 1e-5), _layer_norm(total, gamma, beta))
    found = ops.layer_norm_residual_store_pre_ln_res(x, bias, residual, gamma, beta, 1e-5)
    _assert_close(found[0], _layer_norm(total, gamma, beta))
    _assert_close(found[1], total)
    normalised, stored = ops.pre_rms_norm(x, residual, gamma, 1e-5)
    _assert_close(stored, x.double() + residual.double())
    _assert_close(normalised, _rms_norm(x.double() + residual.double(), gamma))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (1, 6), (2, 6)])
@pytest.mark.parametrize("kind", ["plain", "mask of keys", "mask of rows", "alibi", "all", "triangular", "local"])
def test_softmax(ops: Any, dtype: torch.dtype, queries: int, keys: int, kind: str) -> None:
    scores, none = _x(dtype, BATCH, HEADS, queries, keys), torch.empty(1)
    mask, alibi, head_offset, mp_size, scale = none, none, 0, 1, 0.5
    if kind in ("mask of rows", "all"):
        mask = _x(dtype, BATCH, 1, queries, keys)
    elif kind == "mask of keys":
        mask = _x(dtype, BATCH, keys)
    if kind in ("alibi", "all"):
        alibi, head_offset, mp_size = _x(dtype, BATCH * HEADS * 2, 1, keys), HEADS, 2
    is_triangular, is_local, window = kind in ("triangular", "all"), kind == "local", 2
    expected = torch.zeros(scores.shape, dtype=torch.float64)
    for b, h, i in itertools.product(range(BATCH), range(HEADS), range(queries)):
        place = i if queries == keys else i + keys
        row = []
        for j in range(keys):
            seen = (not is_triangular or j <= i) and (not is_local or place < window or j > place - window)
            added = mask[b, 0, i, j] if mask.dim() == 4 else mask[b, j] if mask.dim() == 2 else 0
            slope = alibi[b * HEADS * mp_size + head_offset + h, 0, j] if alibi.dim() > 1 else 0
            row.append(float(scores[b, h, i, j]) * scale + float(added) + float(slope) if seen else -math.inf)
        expected[b, h, i] = torch.tensor(row, dtype=torch.float64).softmax(0)
    function = getattr(ops, f"softmax_{SUFFIX[dtype]}")
    found = function(scores, mask, alibi, is_triangular, False, is_local, window, False, scale, head_offset, mp_size)
    if expected.isnan().any():  # a query that sees no key, as in deepspeed
        assert torch.equal(found.isnan(), expected.isnan())
    else:
        _assert_close(found, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("bias_add", lambda x: x),
        ("bias_relu", torch.relu),
        ("bias_gelu", lambda x: F.gelu(x, approximate="tanh")),
    ],
)
@pytest.mark.parametrize("is_contiguous", [True, False])
def test_biases(
    ops: Any, dtype: torch.dtype, name: str, act: Callable[[torch.Tensor], torch.Tensor], is_contiguous: bool
) -> None:
    x, bias = _x(dtype), _x(dtype, CHANNELS)
    given = x.clone() if is_contiguous else x.transpose(0, 1).contiguous().transpose(0, 1)
    found = getattr(ops, f"{name}_{SUFFIX[dtype]}")(given, bias)
    _assert_close(found, act(x.double() + bias.double()))
    assert torch.equal(given, x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("biased", [True, False])
def test_gated_activations(ops: Any, dtype: torch.dtype, biased: bool) -> None:
    x, bias = _x(dtype), _x(dtype, CHANNELS) if biased else None
    first, second = (x.double() + (bias.double() if bias is not None else 0)).chunk(2, -1)
    _assert_close(ops.gated_activation(x, bias, 3), first * F.gelu(second))
    _assert_close(ops.gated_activation(x, bias, 4), first * F.silu(second))
    with pytest.raises(NotImplementedError, match="got 16 channels and activation 1"):
        ops.gated_activation(x, bias, 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("after_attn", "preln"), [(True, True), (True, False), (False, False), (False, True)])
@pytest.mark.parametrize("add_bias", [True, False])
def test_residuals(ops: Any, dtype: torch.dtype, after_attn: bool, preln: bool, add_bias: bool) -> None:
    hidden, residual, attention = _x(dtype), _x(dtype), _x(dtype)
    attention_bias, final_bias, mp_size = _x(dtype, CHANNELS), _x(dtype, CHANNELS), 2
    h, r, a, ab, fb = (t.double() for t in (hidden, residual, attention, attention_bias, final_bias))
    if after_attn:
        expected = (r + a + fb + ab) / mp_size + h if preln else r + h + fb
    else:
        expected = h + a + (r + (ab if add_bias else 0) + fb) / mp_size
    function = getattr(ops, f"residual_add_bias_{SUFFIX[dtype]}")
    found = function(hidden, residual, attention, attention_bias, final_bias, mp_size, after_attn, add_bias, preln)
    assert found is residual
    _assert_close(residual, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_in_place(ops: Any, dtype: torch.dtype) -> None:
    a, b, out, coef = _x(dtype), _x(dtype), _x(dtype), _x(dtype, 1, 1, 2 * CHANNELS)
    expected = a.double() * 0.25 + b.double()
    weighted = b.double() * coef[..., :CHANNELS].double() + out.double() * coef[..., CHANNELS:].double()
    assert ops._vector_add(a, b, 0.25) is a
    _assert_close(a, expected)
    assert ops.moe_res_matmul(b, coef, out) is out
    _assert_close(out, weighted)
    assert torch.equal(getattr(ops, f"bias_residual_{SUFFIX[dtype]}")(a, b, coef), a)


def _weight(dtype: torch.dtype, rows: int, columns: int, kind: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return ``(in, out)`` in float64, and the weight and its scales as arguments."""
    if kind == "int8":
        weight, scale = torch.randint(-127, 128, (columns, rows), dtype=torch.int8), torch.rand(4) / 500
        return (weight.double().view(4, -1) * scale.double()[:, None]).view(columns, rows).t(), weight, scale
    plain = _x(dtype, rows, columns) / 4
    return plain.double(), plain.t().contiguous() if kind == "transposed" else plain, NO_SCALE


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["plain", "transposed", "int8"])
def test_products(ops: Any, dtype: torch.dtype, kind: str) -> None:
    x, gamma, beta, bias = _x(dtype), _x(dtype, CHANNELS), _x(dtype, CHANNELS), _x(dtype, INNER)
    exact, weight, scale = _weight(dtype, CHANNELS, INNER, kind)
    flags, of = (kind == "int8", kind == "transposed"), SUFFIX[dtype]
    _assert_close(getattr(ops, f"vector_matmul_{of}")(x, weight, False, scale, *flags), x.double() @ exact)
    for add_bias in (True, False):
        found = getattr(ops, f"qkv_gemm_{of}")(x, weight, scale, bias, gamma, beta, 1e-5, add_bias, *flags)
        _assert_close(found[1], _layer_norm(x, gamma, beta))
        _assert_close(found[0], found[1].double() @ exact + (bias.double() if add_bias else 0))
    product, normalised = getattr(ops, f"rms_qkv_gemm_{of}")(x, weight, scale, gamma, 1e-5, *flags)
    _assert_close(normalised, _rms_norm(x, gamma))
    _assert_close(product, normalised.double() @ exact)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["plain", "transposed", "int8"])
@pytest.mark.parametrize("act", [1, 2])
def test_mlps(ops: Any, dtype: torch.dtype, kind: str, act: int) -> None:
    x, residual, gamma, beta, x_bias = _x(dtype), _x(dtype), *(_x(dtype, CHANNELS) for _ in range(3))
    bias, of, flags = _x(dtype, INNER), SUFFIX[dtype], (kind == "transposed",)
    first, weight, scale = _weight(dtype, CHANNELS, INNER, kind)
    second, weight_out, scale_out = _weight(dtype, INNER, CHANNELS, kind)

    def expected(normalised: torch.Tensor, add: torch.Tensor | float) -> torch.Tensor:
        inner = normalised.double() @ first + add
        return (F.gelu(inner, approximate="tanh") if act == 1 else inner.relu()) @ second

    for after_attn in (True, False):
        total = x.double() + residual.double() + x_bias.double() if after_attn else residual
        output, normalised = getattr(ops, f"mlp_gemm_{of}")(
            x, residual, x_bias, weight, weight_out, bias, gamma, beta, 1e-5, True, after_attn, scale, scale_out,
            kind == "int8", act, *flags,
        )  # fmt: skip
        _assert_close(normalised, _layer_norm(total, gamma, beta))
        torch.testing.assert_close(output.double(), expected(normalised, bias.double()), rtol=5e-2, atol=5e-2)
    if act == 1:
        found = getattr(ops, f"fused_gemm_gelu_{of}")(
            x, weight, scale, bias, weight_out, scale_out, kind == "int8", *flags
        )
        torch.testing.assert_close(found.double(), expected(x, bias.double()), rtol=5e-2, atol=5e-2)
    before = residual.clone()
    output, total = getattr(ops, f"rms_mlp_gemm_{of}")(
        x, residual, weight, weight_out, gamma, 1e-5, scale, scale_out, kind == "int8", act, *flags
    )
    assert total is residual
    _assert_close(residual, x.double() + before.double())
    torch.testing.assert_close(output.double(), expected(_rms_norm(residual, gamma), 0.0), rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize(("act", "function"), [(3, F.gelu), (4, F.silu)])
def test_a_gated_mlp(ops: Any, act: int, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x, residual, gamma = _x(torch.float32), _x(torch.float32), _x(torch.float32, CHANNELS)
    weight, weight_out = _x(torch.float32, CHANNELS, 2 * INNER), _x(torch.float32, INNER, CHANNELS)
    first, second = (_rms_norm(x + residual, gamma) @ weight.double()).chunk(2, -1)
    output, _ = ops.rms_mlp_gemm_fp32(
        x, residual, weight, weight_out, gamma, 1e-5, NO_SCALE, NO_SCALE, False, act, False
    )
    torch.testing.assert_close(output.double(), (first * function(second)) @ weight_out.double(), rtol=1e-4, atol=1e-3)
    with pytest.raises(NotImplementedError, match="got activation 0; expected 1"):
        ops.rms_mlp_gemm_fp32(x, residual, weight, weight_out, gamma, 1e-5, NO_SCALE, NO_SCALE, False, 0, False)


@pytest.mark.parametrize(("head_size", "wide"), [(8, 32), (32, 64), (40, 64), (64, 64), (80, 128), (128, 128)])
def test_a_product_by_heads(ops: Any, head_size: int, wide: int) -> None:
    x, weight = _x(torch.float32, BATCH, TOKENS, 2 * head_size), _x(torch.float32, 2 * head_size, 6 * head_size)
    bias = _x(torch.float32, 6 * head_size)
    plain = ops.linear_layer_fp32(x, weight, bias, True, False, 2, False, 1e4)
    torch.testing.assert_close(plain, x @ weight + bias)
    by_heads = ops.linear_layer_fp32(x, weight, bias, True, True, 2, False, 1e4)
    assert by_heads.shape == (3, BATCH, 2, TOKENS, wide)
    for kind, b, head, token in itertools.product(range(3), range(BATCH), range(2), range(TOKENS)):
        start = (kind * 2 + head) * head_size
        assert torch.equal(by_heads[kind, b, head, token, :head_size], plain[b, token, start : start + head_size])
    assert (by_heads[..., head_size:] == 0).all()


def test_padding(ops: Any) -> None:
    query, key, value = (_x(torch.float32, BATCH, 5, 2 * 24) for _ in range(3))
    plain = ops.pad_transform_fp32(query, key, value, 2, False)
    padded = ops.pad_transform_fp32(query, key, value, 2, True)
    assert [part.shape[2:] for part in padded] == [(5, 32), (128, 32), (128, 32)]
    for given, part, wide in zip((query, key, value), plain, padded, strict=True):
        assert torch.equal(part, given.view(BATCH, 5, 2, 24).transpose(1, 2))
        assert torch.equal(wide[:, :, :5, :24], part)
        assert float(wide.sum()) == pytest.approx(float(part.sum()), abs=1e-3)
    again = ops.add_padding_fp32(*plain)
    assert all(torch.equal(a, b) for a, b in zip(again, padded, strict=True))
    with pytest.raises(ValueError, match="got 129 tokens of heads of 8; expected at most 128"):
        ops.add_padding_fp32(*(torch.zeros(1, 1, 129, 8) for _ in range(3)))


def test_dispatch_to_experts(ops: Any) -> None:
    weights, tokens = _x(torch.float32, 5, 2, 3), _x(torch.float32, 5, 4)
    found = ops.einsum_sec_sm_ecm_fp32(weights, tokens)
    for e, c in itertools.product(range(2), range(3)):
        torch.testing.assert_close(found[e, c], sum(weights[s, e, c] * tokens[s] for s in range(5)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_of_int8(ops: Any, dtype: torch.dtype) -> None:
    exact, weight, scale = _weight(dtype, CHANNELS, INNER, "int8")
    found = getattr(ops, f"dequantize_{SUFFIX[dtype]}")(weight, scale, 4)
    assert found.dtype == dtype
    assert torch.equal(found, exact.t().to(torch.float32).to(dtype))
    with pytest.raises(ValueError, match="equal groups and one scale per group"):
        ops.dequantize_fp16(weight, scale, 5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rotary", [4, 2])
def test_positions_turn_queries_and_keys(ops: Any, dtype: torch.dtype, rotary: int) -> None:
    size, cached = CHANNELS // HEADS, 7
    query, key = _x(dtype), _x(dtype, BATCH * HEADS, cached, size)
    before_query, before_key = query.clone().view(BATCH * HEADS, TOKENS, size), key.clone()
    found = ops.apply_rotary_pos_emb(query, key, rotary, 5, HEADS, True, 100.0)
    assert torch.equal(key, before_key)
    for x, before in ((found[0].view(BATCH * HEADS, TOKENS, size), before_query), (found[1], before_key)):
        expected = before.double().clone()
        for token, i in itertools.product(range(TOKENS), range(rotary // 2)):
            angle = (5 + token) * 100.0 ** (-2 * i / rotary)
            a, b = before[:, token, i].double(), before[:, token, i + rotary // 2].double()
            expected[:, token, i] = a * math.cos(angle) - b * math.sin(angle)
            expected[:, token, i + rotary // 2] = b * math.cos(angle) + a * math.sin(angle)
        _assert_close(x, expected)


def test_what_does_not_fit_is_refused(ops: Any) -> None:
    x = torch.randn(2, 3, 16)
    with pytest.raises(ValueError, match=r"bias_add failed: got bias, .*shape \(15,\)"):
        ops.bias_add_fp32(x, torch.ones(15))
    with pytest.raises(
        ValueError, match=r"vector_matmul failed: got weight, .*expected torch.float32 of shape \(8, 16\)"
    ):
        ops.vector_matmul_fp32(x, torch.ones(15, 8), False, NO_SCALE, False, False)
    with pytest.raises(ValueError, match="expected a row of 3 for each head"):
        ops.softmax_fp32(torch.ones(1, 2, 3, 3), None, torch.ones(1, 1, 3), False, False, False, 1, False, 1.0, 0, 1)
    scores, options = torch.randn(2, 2, 3, 3), (None, False, False, False, 1, False, 1.0, 0, 1)
    for shape in ((3, 4), (2, 1), (3, 3), (2, 3, 3, 3), (2, 1, 2, 3), (2, 1, 3, 1)):
        with pytest.raises(
            ValueError, match=r"softmax failed: got attn_mask of shape .*; expected \(2, 3\), or the scores'"
        ):
            ops.softmax_fp32(scores, torch.zeros(shape), *options)
    for shape in ((1, 3), (2, 2, 3, 3), (1, 1, 3, 3), (2, 1, 1, 3)):
        mask = torch.randn(shape)
        expected = (scores + (mask if mask.dim() == 4 else mask[:, None, None])).softmax(-1)
        _assert_close(ops.softmax_fp32(scores, mask, *options), expected.double())
    with pytest.raises(RuntimeError, match="whose elements share memory"):
        ops._vector_add(torch.ones(1, 1, 4).expand(2, 3, 4), torch.ones(2, 3, 4), 1.0)
    assert not hasattr(ops, "softmax_context_fp32")
