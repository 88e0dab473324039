"""Colossal-AI's functions for inference and attention, by its calls, against their definitions written out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.nn import functional

from anyaccel.kernel import kernel_loader

if TYPE_CHECKING:
    pass


def _load(name: str) -> Any:
    return getattr(kernel_loader, f"{name}Loader")().load()


# Paged caches


class Paged:
    """Three sequences of a model with four heads over two, in blocks of four entries in no particular order."""

    heads, kv_heads, dim, size, x = 4, 2, 8, 4, 4

    def __init__(self, is_split: bool, codes: bool = False) -> None:
        torch.manual_seed(0)
        self.lengths = torch.tensor([5, 1, 8], dtype=torch.int32)
        self.tables = torch.tensor([[3, 0, -1], [5, -1, -1], [1, 4, 2]], dtype=torch.int32)
        dtype = torch.uint8 if codes else torch.float32
        shape = (
            (7, self.kv_heads, self.dim // self.x, self.size, self.x)
            if is_split
            else (7, self.kv_heads, self.size, self.dim)
        )
        self.keys, self.values = (
            torch.zeros(shape, dtype=dtype),
            torch.zeros(7, self.kv_heads, self.size, self.dim, dtype=dtype),
        )
        self.history = [torch.randn(2, int(length), self.kv_heads, self.dim) for length in self.lengths]
        if codes:  # e5m2 can hold these values
            self.history = [(one * 4).round() / 4 for one in self.history]
            self.history = [one.to(torch.float8_e5m2).float() for one in self.history]

    def entry(self, cache: torch.Tensor, sequence: int, position: int) -> torch.Tensor:
        block = cache[int(self.tables[sequence, position // self.size])]
        place = block[:, :, position % self.size] if block.dim() == 4 else block[:, position % self.size]
        floats = place.contiguous().view(torch.float8_e5m2).float() if place.dtype == torch.uint8 else place
        return floats.reshape(self.kv_heads, self.dim)

    def check(self) -> None:
        for sequence, (keys, values) in enumerate(self.history):
            for position in range(keys.shape[0]):
                assert torch.equal(self.entry(self.keys, sequence, position), keys[position])
                assert torch.equal(self.entry(self.values, sequence, position), values[position])


@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize("codes", [False, True])
def test_whole_sequences_are_copied_to_their_blocks(is_split: bool, codes: bool) -> None:
    paged = Paged(is_split, codes)
    keys, values = torch.cat(paged.history, 1)
    starts = functional.pad(paged.lengths.cumsum(0), (1, 0)).int()
    _load("InferenceOps").context_kv_cache_memcpy(
        keys, values, paged.keys, paged.values, paged.lengths, starts, paged.tables, 8
    )
    paged.check()
    assert not paged.keys[6].any()


@pytest.mark.parametrize("is_split", [False, True])
def test_each_sequences_last_token_is_copied_to_its_block(is_split: bool) -> None:
    paged, ops = Paged(is_split), _load("InferenceOps")
    for position in range(8):
        lengths = torch.clamp(torch.full((3,), position + 1), max=paged.lengths)
        key, value = (
            torch.stack([one[part, int(at) - 1] for one, at in zip(paged.history, lengths, strict=True)])
            for part in (0, 1)
        )
        ops.decode_kv_cache_memcpy(key, value, paged.keys, paged.values, lengths.int(), paged.tables)
    paged.check()


def test_a_block_of_a_negative_number_is_not_written() -> None:
    paged = Paged(is_split=True)
    token = torch.ones(3, 2, 8)
    _load("InferenceOps").decode_kv_cache_memcpy(
        token, token, paged.keys, paged.values, torch.tensor([9, 5, 1], dtype=torch.int32), paged.tables
    )
    assert paged.keys.sum() == paged.values.sum() == 16  # of the third sequence only


def test_tokens_before_the_first_sequence_are_not_written() -> None:
    paged = Paged(is_split=False)
    paged.tables[0, 2] = 6  # where a position before the first would lie
    tokens, starts = torch.ones(6, 2, 8), torch.tensor([2, 4, 5, 6], dtype=torch.int32)
    _load("InferenceOps").context_kv_cache_memcpy(
        tokens, tokens, paged.keys, paged.values, torch.tensor([2, 1, 1], dtype=torch.int32), starts, paged.tables, 2
    )
    assert paged.keys.sum() == paged.values.sum() == 4 * 16


def test_attention_asks_for_a_block_of_each_entry() -> None:
    paged = Paged(is_split=False)
    lengths = torch.tensor([5, 5, 8], dtype=torch.int32)  # the second has one block of four entries
    out = torch.empty(3, 4, 8)
    empty = torch.empty(0)
    with pytest.raises(ValueError, match="got a negative block in block_tables before the end of its sequence"):
        _load("InferenceOps").flash_decoding_attention(
            out, out.clone(), paged.keys, paged.values, lengths, paged.tables, 4, 8, empty, empty, empty, None, 1.0
        )


def test_what_does_not_fit_the_caches_is_refused_before_it_is_written() -> None:
    ops, paged = _load("InferenceOps"), Paged(is_split=True)
    token, lengths, tables = torch.ones(3, 2, 8), paged.lengths, paged.tables
    for call, said in {
        lambda: ops.decode_kv_cache_memcpy(
            token, token, paged.keys, paged.values, lengths * 0, tables
        ): "got sequences of 0 to 0",
        lambda: ops.decode_kv_cache_memcpy(
            token, token, paged.keys, paged.values, lengths + 5, tables
        ): "of 6 to 13 tokens",
        lambda: ops.decode_kv_cache_memcpy(token, token, paged.keys, paged.values, lengths, tables + 3): "got block 8",
        lambda: ops.decode_kv_cache_memcpy(
            token, token[:, :1], paged.keys, paged.values, lengths, tables
        ): "and values of shape",
        lambda: ops.decode_kv_cache_memcpy(
            token, token, paged.keys[1:], paged.values, lengths, tables
        ): "got caches of shape",
        lambda: ops.context_kv_cache_memcpy(
            token, token, paged.keys, paged.values, lengths, lengths, tables, 8
        ): "got 3 entries of cu_seqlens; expected 4",
        lambda: ops.get_cos_and_sin(
            torch.ones(4, 8), torch.ones(4, 8), token[0], token[0], lengths, 8, True
        ): "of 1 to 8 tokens",
    }.items():
        with pytest.raises(ValueError, match=said):
            call()
    assert not paged.keys.any()
    assert not paged.values.any()


def test_the_rotated_key_is_cached_and_the_query_turned_in_place() -> None:
    paged, ops = Paged(is_split=True), _load("InferenceOps")
    query, key, value = torch.randn(3, 4, 8), torch.randn(3, 2, 8), torch.randn(3, 2, 8)
    cos, sin = torch.randn(3, 8), torch.randn(3, 8)
    turned, expected, given = query.clone(), key.clone(), key.clone()
    ops.rotary_embedding(turned, expected, cos, sin)
    ops.rotary_embedding_and_cache_copy(
        query, key, value, cos, sin, paged.keys, paged.values, paged.lengths, paged.tables, True
    )
    assert torch.equal(query, turned)
    assert torch.equal(key, given)
    for sequence, length in enumerate(paged.lengths.tolist()):
        assert torch.equal(paged.entry(paged.keys, sequence, length - 1), expected[sequence])
        assert torch.equal(paged.entry(paged.values, sequence, length - 1), value[sequence])


@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize("codes", [False, True])
@pytest.mark.parametrize("with_slopes", [False, True])
def test_attention_over_blocks(is_split: bool, codes: bool, with_slopes: bool) -> None:
    paged, ops = Paged(is_split, codes), _load("InferenceOps")
    if not codes:
        paged.keys.fill_(math.nan), paged.values.fill_(math.nan)
    starts = functional.pad(paged.lengths.cumsum(0), (1, 0)).int()
    ops.context_kv_cache_memcpy(
        *torch.cat(paged.history, 1), paged.keys, paged.values, paged.lengths, starts, paged.tables, 8
    )
    query, slopes = torch.randn(3, 4, 8), torch.rand(4) if with_slopes else None
    out = torch.empty(3, 4, 8)
    ops.flash_decoding_attention(
        out,
        query,
        paged.keys,
        paged.values,
        paged.lengths,
        paged.tables,
        4,
        8,
        torch.empty(0),
        torch.empty(0),
        torch.empty(0),
        slopes,
        0.3,
    )
    for sequence, (keys, values) in enumerate(paged.history):
        for head in range(4):
            scores = keys[:, head // 2] @ query[sequence, head] * 0.3
            if slopes is not None:
                scores = scores + slopes[head] * (torch.arange(len(keys)) - len(keys) + 1)
            expected = scores.softmax(0) @ values[:, head // 2]
            torch.testing.assert_close(out[sequence, head], expected, rtol=1e-4, atol=1e-5)


def test_angles_are_gathered_for_prompts_and_for_last_tokens() -> None:
    ops, cos_cache, sin_cache = _load("InferenceOps"), torch.randn(9, 8), torch.randn(9, 8)
    lengths = torch.tensor([3, 1, 5], dtype=torch.int32)
    cos, sin = torch.empty(9, 8), torch.empty(9, 8)
    ops.get_cos_and_sin(cos_cache, sin_cache, cos, sin, lengths, 5, True)
    expected = [position for length in lengths.tolist() for position in range(length)]
    assert torch.equal(cos, cos_cache[expected])
    assert torch.equal(sin, sin_cache[expected])
    ops.get_cos_and_sin(cos_cache, sin_cache, cos[:3], sin[:3], lengths, 5, False)
    assert torch.equal(cos[:3], cos_cache[[2, 0, 4]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_8_bit_floats_come_and_go(dtype: torch.dtype) -> None:
    ops, x = _load("InferenceOps"), torch.randn(5, 7).to(dtype)
    codes, back = torch.empty(5, 7, dtype=torch.uint8), torch.empty(5, 7, dtype=dtype)
    ops.convert_fp8(x, codes)
    ops.convert_fp8(codes, back)
    torch.testing.assert_close(back, x, rtol=0.126, atol=1e-4)
    with pytest.raises(ValueError, match=r"expected torch\.uint8, and float32, float16 or bfloat16"):
        ops.convert_fp8(x, back)


# Attention


@pytest.mark.parametrize(
    "name", ["FlashAttention", "FlashAttentionWithCustomMask", "FlashAttentionForFloatAndCustomMask"]
)
def test_attention_by_their_arguments(name: str) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 5, 8)
    attention = _load(name)
    earlier, kept = torch.ones(5, 5).tril().bool(), torch.rand(2, 5, 5) < 0.7
    kept[..., 0] = True
    added = torch.zeros(2, 5, 5).masked_fill(~kept, torch.finfo(torch.float32).min)

    def expected(mask: torch.Tensor) -> torch.Tensor:
        scores = (query @ key.transpose(-1, -2) * 0.4).masked_fill(~mask, -torch.inf)
        return scores.softmax(-1) @ value

    every = torch.ones(5, 5, dtype=torch.bool)
    close = torch.testing.assert_close
    close(attention(query, key, value, 0.0, 0.4), expected(every))
    close(attention(q=query, k=key, v=value, scale=0.4), expected(every))
    close(attention(query, key, value, dropout_p=0.0, scale=0.4, attention_mask=added), expected(kept[:, None]))
    close(
        attention(query, key, value, scale=0.4, attention_mask=kept, is_causal=True), expected(kept[:, None] & earlier)
    )
    close(attention(query, key, value, scale=0.4, attention_mask_type=2), expected(earlier))
    close(attention(query, key, value, 0.0, 0.4, added, True), expected(kept[:, None] & earlier))
    dropped = attention(query, key, value, dropout_p=0.5)
    assert not torch.equal(dropped, attention(query, key, value, dropout_p=0.5))


@pytest.mark.parametrize("is_causal", [False, True])
def test_padding_by_indices_is_hidden_and_comes_out_as_zeros(is_causal: bool) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 5, 8)
    lengths = [5, 3]
    indices = torch.tensor([row * 5 + at for row, length in enumerate(lengths) for at in range(length)])
    ends = torch.tensor([0, 5, 8], dtype=torch.int32)
    found = _load("FlashAttention")(
        query, key, value, is_causal=is_causal, cu_seqlens_q=ends, cu_seqlens_kv=ends, max_seqlen_q=5, max_seqlen_kv=5,
        q_indices=indices, kv_indices=indices,
    )  # fmt: skip
    for row, length in enumerate(lengths):
        parts = [tensor[row, :, :length] for tensor in (query, key, value)]
        torch.testing.assert_close(
            found[row, :, :length], functional.scaled_dot_product_attention(*parts, is_causal=is_causal)
        )
        assert not found[row, :, length:].any()


def test_what_is_refused_writes_neither_of_two_outputs() -> None:
    inference = _load("InferenceOps")
    cos, sin = torch.zeros(3, 8), torch.ones(3, 8)
    query = torch.ones(3, 2, 8)
    for key in (torch.ones(4, 2, 8), torch.ones(3, 2, 8, dtype=torch.int32), torch.ones(3, 1, 8).expand(3, 2, 8)):
        with pytest.raises((RuntimeError, ValueError)):
            inference.rotary_embedding(query, key, cos, sin)
    caches = [torch.zeros(2, 2, 4, 8) for _ in range(2)]
    tables = torch.tensor([[5], [0], [1]], dtype=torch.int32)
    with pytest.raises(ValueError, match="got block 5"):
        inference.rotary_embedding_and_cache_copy(
            query, query.clone(), query.clone(), cos, sin, *caches, torch.ones(3, dtype=torch.int32), tables
        )
    assert bool((query == 1).all())
    x = torch.ones(2, 4)
    with pytest.raises(RuntimeError, match="share memory"):
        inference.fused_add_rms_layernorm(x, torch.ones(1, 4).expand(2, 4), torch.ones(4), 1e-6)
    assert bool((x == 1).all())
    for other in (x, x.view(-1)[:4].view(1, 4).expand(1, 4)):
        with pytest.raises(RuntimeError, match="two outputs that share memory" if other is x else "failed"):
            inference.fused_add_rms_layernorm(x, other, torch.ones(4), 1e-6)
    assert bool((x == 1).all())
    written = torch.zeros(2, 4)
    with pytest.raises(RuntimeError, match="get_cos_and_sin failed"):
        inference.get_cos_and_sin(
            torch.ones(8, 4), torch.ones(8, 4), written, torch.zeros(2, 5), torch.tensor([3, 4]), 4, False
        )
    assert not written.any()
