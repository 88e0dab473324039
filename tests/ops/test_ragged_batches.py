"""deepspeed's operations on ragged batches: each against its definition, written out token by token."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from anyaccel.op_builder.all_ops import builder_class

HEADS, KEY_HEADS, SIZE, BLOCK = 4, 2, 8, 3
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(scope="module")
def ops() -> Any:
    cls: Any = builder_class("RaggedOpsBuilder", "cpu")
    return cls().load()


@dataclass
class Batch:
    """Three sequences: a prompt, one in progress, and a single token; followed by padding rows."""

    lengths: tuple[int, ...] = (5, 2, 1)
    seen: tuple[int, ...] = (0, 4, 6)
    padding: int = 2
    lists: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        free = list(torch.randperm(12))
        for length, seen in zip(self.lengths, self.seen, strict=True):
            count = -(-(length + seen) // BLOCK)
            self.lists.append((ctypes.c_int32 * count)(*[int(free.pop()) for _ in range(count)]))

    @property
    def tokens(self) -> int:
        return sum(self.lengths)

    @property
    def rows(self) -> int:
        return self.tokens + self.padding

    def places(self) -> list[tuple[int, int]]:
        """Return each token's sequence, and its position there."""
        return [
            (number, seen + i)
            for number, (length, seen) in enumerate(zip(self.lengths, self.seen, strict=True))
            for i in range(length)
        ]

    def metadata(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        starts = [sum(self.lengths[:i]) for i in range(len(self.lengths))]
        described = [[start, n, seen, 0] for start, n, seen in zip(starts, self.lengths, self.seen, strict=True)]
        owners = [number for number, _ in self.places()] + [-1] * self.padding
        addresses = [ctypes.addressof(numbers) for numbers in self.lists]
        return (
            torch.tensor([self.tokens, len(self.lengths)], dtype=torch.int32),
            torch.tensor(described, dtype=torch.int32),
            torch.tensor(owners, dtype=torch.int32),
            torch.tensor(addresses),
        )


@pytest.fixture
def batch() -> Batch:
    return Batch()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("id_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("offset", [None, 0, 2, -3])
def test_embedding(ops: Any, batch: Batch, dtype: torch.dtype, id_dtype: torch.dtype, offset: int | None) -> None:
    table, positions = torch.randn(10, 16).to(dtype), torch.randn(6, 16).to(dtype)
    ids = torch.randint(0, 10, (batch.rows,)).to(id_dtype)
    ids[1], ids[3] = -1, 10
    out = torch.full((batch.rows, 16), 7.0, dtype=dtype)
    ops.ragged_embed(out, ids, table, None if offset is None else positions, offset or 0, *batch.metadata())
    for row, (_, place) in enumerate(batch.places()):
        if row in (1, 3):
            assert (out[row] == 7).all()
            continue
        expected = table[ids[row]]
        if offset is not None:
            expected = expected + positions[min(max(place + offset, 0), 5)]
        assert torch.equal(out[row], expected)
    assert (out[batch.tokens :] == 7).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_last_token_of_each_sequence(ops: Any, batch: Batch, dtype: torch.dtype) -> None:
    acts = torch.randn(batch.rows, 16).to(dtype)
    out = torch.full((4, 16), 7.0, dtype=dtype)
    metadata, described, _, _ = batch.metadata()
    ops.gather_for_logits(out, acts, metadata, described)
    assert torch.equal(out[:3], acts[[4, 6, 7]])
    assert (out[3] == 7).all()


def _turned(head: torch.Tensor, place: int, inv_freq: torch.Tensor) -> torch.Tensor:
    head, half = head.float().clone(), inv_freq.numel()
    for i in range(half):
        cos, sin = math.cos(place * inv_freq[i]), math.sin(place * inv_freq[i])
        a, b = head[i].item(), head[i + half].item()
        head[i], head[i + half] = a * cos - b * sin, b * cos + a * sin
    return head


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", ["copy", "theta", "theta in part", "trained"])
def test_keys_and_values_go_to_their_blocks(ops: Any, batch: Batch, dtype: torch.dtype, how: str) -> None:
    cache = torch.full((12, BLOCK, 2, KEY_HEADS, SIZE), 7.0, dtype=dtype)
    qkv = torch.randn(batch.rows, (HEADS + 2 * KEY_HEADS) * SIZE).to(dtype)
    q, k, v = qkv.split([HEADS * SIZE, KEY_HEADS * SIZE, KEY_HEADS * SIZE], 1)
    before, metadata = qkv.clone(), batch.metadata()
    rotary = {"copy": 0, "theta": SIZE, "theta in part": 4, "trained": SIZE}[how]
    inv_freq = torch.tensor([100.0 ** (-2 * i / rotary) for i in range(rotary // 2)])
    if how == "copy":
        ops.linear_kv_copy(cache, q, k, v, *metadata)
    elif how == "trained":
        inv_freq = torch.rand(rotary // 2)
        ops.kv_trained_rotary_embeddings(cache, q, k, v, inv_freq, *metadata)
    else:
        ops.kv_rotary_embeddings(cache, q, k, v, rotary, 100.0, *metadata)
    expected = torch.full_like(cache, 7.0)
    queries = before[:, : HEADS * SIZE].clone()
    for row, (number, place) in enumerate(batch.places()):
        where = (batch.lists[number][place // BLOCK], place % BLOCK)
        for head in range(KEY_HEADS):
            channels = slice((HEADS + head) * SIZE, (HEADS + head + 1) * SIZE)
            expected[where][0, head] = _turned(before[row, channels], place, inv_freq).to(dtype)
        expected[where][1] = before[row, (HEADS + KEY_HEADS) * SIZE :].view(KEY_HEADS, SIZE)
        for head in range(HEADS):
            channels = slice(head * SIZE, (head + 1) * SIZE)
            queries[row, channels] = _turned(before[row, channels], place, inv_freq).to(dtype)
    torch.testing.assert_close(cache, expected)
    torch.testing.assert_close(q, queries)
    assert torch.equal(qkv[:, HEADS * SIZE :], before[:, HEADS * SIZE :])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("q_block", [1, 2, 64])
def test_attention_over_blocks(ops: Any, batch: Batch, dtype: torch.dtype, is_causal: bool, q_block: int) -> None:
    cache = torch.randn(12, BLOCK, 2, KEY_HEADS, SIZE).to(dtype)
    q, out = torch.randn(batch.rows, HEADS * SIZE).to(dtype), torch.full((batch.rows, HEADS * SIZE), 7.0, dtype=dtype)
    metadata, described, _, addresses = batch.metadata()
    atoms = torch.zeros(16, 8, dtype=torch.int32)
    count = ops.build_atoms(atoms, metadata, described, addresses, q_block, BLOCK)
    assert count == sum(-(-length // q_block) for length in batch.lengths)
    ops.flash_attn_by_atoms(out, q, cache[:, :, 0], cache[:, :, 1], atoms[:count], 0.25, is_causal)
    for row, (number, place) in enumerate(batch.places()):
        atom_end = batch.seen[number] + min(
            ((place - batch.seen[number]) // q_block + 1) * q_block, batch.lengths[number]
        )
        extent = place + 1 if is_causal else atom_end
        seen = [cache[batch.lists[number][p // BLOCK], p % BLOCK] for p in range(extent)]
        for head in range(HEADS):
            query = q[row, head * SIZE : (head + 1) * SIZE].float()
            scores = torch.stack([query @ kv[0, head // 2].float() for kv in seen]) * 0.25
            values = torch.stack([kv[1, head // 2].float() for kv in seen])
            expected = (scores.softmax(0)[:, None] * values).sum(0).to(dtype)
            torch.testing.assert_close(out[row, head * SIZE : (head + 1) * SIZE], expected, rtol=2e-2, atol=1e-2)
    assert (out[batch.tokens :] == 7).all()


def test_atoms_are_laid_out_as_deepspeeds(ops: Any, batch: Batch) -> None:
    metadata, described, _, addresses = batch.metadata()
    atoms = torch.full((5, 8), -7, dtype=torch.int32)
    assert ops.build_atoms(atoms, metadata, described, addresses, 4, BLOCK) == 4
    assert atoms.view(torch.int64)[:4, 0].tolist() == [addresses[i] for i in (0, 0, 1, 2)]
    assert atoms[:4, 2:7].tolist() == [[0, 4, 2, 4, 0], [4, 1, 2, 5, 4], [5, 2, 2, 6, 4], [7, 1, 3, 7, 6]]
    assert (atoms[4] == -7).all()
    with pytest.raises(ValueError, match=r"got a tensor of 3 atoms .* expected 4 or more"):
        ops.build_atoms(atoms[:3], metadata, described, addresses, 4, BLOCK)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("normalised", [True, False])
def test_experts_there_and_back(ops: Any, dtype: torch.dtype, k: int, normalised: bool) -> None:
    tokens, rows, experts, channels = 9, 11, 4, 8
    logits = torch.randint(-3, 4, (rows, experts)).to(dtype)  # with ties
    counts, scores = torch.zeros(experts, dtype=torch.int32), torch.full((rows, k), 7.0)
    assignments, offsets, slots = (torch.full((rows, k), 7, dtype=torch.int32) for _ in range(3))
    ops.top_k_gating(counts, scores, assignments, offsets, logits, torch.tensor([tokens, 1], dtype=torch.int32))
    so_far = [0] * experts
    for token in range(tokens):
        order = sorted(range(experts), key=lambda expert: (-logits[token, expert].item(), expert))
        for i, expert in enumerate(order[:k]):
            assert assignments[token, i] == expert
            assert offsets[token, i] == so_far[expert]
            so_far[expert] += 1
            torch.testing.assert_close(scores[token, i], logits[token].float().softmax(0)[expert])
    assert counts.tolist() == so_far
    assert (assignments[tokens:] == -1).all()
    assert (offsets[tokens:] == -1).all()

    acts, moe_input = torch.randn(rows, channels).to(dtype), torch.full((rows * k, channels), 7.0, dtype=dtype)
    ends = torch.zeros(experts, dtype=torch.int64)
    ops.moe_scatter(moe_input, ends, slots, acts, counts, assignments, offsets)
    assert ends.tolist() == [sum(so_far[: i + 1]) for i in range(experts)]
    for token in range(tokens):
        for i in range(k):
            expert = int(assignments[token, i])
            assert slots[token, i] == sum(so_far[:expert]) + offsets[token, i]
            assert torch.equal(moe_input[slots[token, i]], acts[token])
    assert (moe_input[tokens * k :] == 7).all()
    assert (slots[tokens:] == -1).all()

    out = torch.full((rows, channels), 7.0, dtype=dtype)
    ops.moe_gather(out, moe_input, scores, slots, counts, normalised)
    for token in range(tokens):
        weights = [float(scores[token, i]) for i in range(k)]
        total = sum(weights) if normalised else 1
        expected = sum(w / total * moe_input[slots[token, i]].float() for i, w in enumerate(weights))
        torch.testing.assert_close(out[token], torch.as_tensor(expected).to(dtype), rtol=1e-2, atol=1e-2)
    assert (out[tokens:] == 7).all()
    assert counts.tolist() == [0] * experts


def test_a_batch_without_tokens(ops: Any) -> None:
    empty = Batch(lengths=(), seen=(), padding=3)
    metadata, _, owners, addresses = empty.metadata()
    about = (metadata, torch.zeros(0, 4, dtype=torch.int32), owners, addresses)
    out, cache = torch.ones(3, 16), torch.ones(2, BLOCK, 2, KEY_HEADS, SIZE)
    ops.ragged_embed(out, torch.zeros(3, dtype=torch.int64), torch.zeros(4, 16), None, 0, *about)
    ops.linear_kv_copy(cache, *(torch.zeros(3, KEY_HEADS * SIZE) for _ in range(3)), *about)
    assert (out == 1).all()
    assert (cache == 1).all()


def test_what_does_not_fit_is_refused_and_nothing_is_written(ops: Any, batch: Batch) -> None:
    metadata, described, owners, addresses = batch.metadata()
    cache = torch.ones(4, BLOCK, 2, KEY_HEADS, SIZE)
    q, kv = torch.randn(batch.rows, HEADS * SIZE), torch.randn(batch.rows, KEY_HEADS * SIZE)
    before = q.clone()
    batch.lists[0][0] = 4
    with pytest.raises(ValueError, match="of a cache of 4; expected 2 numbers from 0 to 3"):
        ops.kv_rotary_embeddings(cache, q, kv, kv, SIZE, 100.0, metadata, described, owners, addresses)
    assert (cache == 1).all()
    assert torch.equal(q, before)
    with pytest.raises(ValueError, match="got numbers of sequences from 0 to 2; expected 0 to 1"):
        two = torch.tensor([8, 2], dtype=torch.int32)
        ops.linear_kv_copy(cache, q, kv, kv, two, described, owners, addresses)
    with pytest.raises(ValueError, match="got the blocks at no address"):
        ops.linear_kv_copy(cache, q, kv, kv, metadata, described, owners, torch.zeros_like(addresses))
    with pytest.raises(ValueError, match="expected whole heads"):
        ops.linear_kv_copy(cache, q[:, :-1], kv, kv, metadata, described, owners, addresses)
    atoms = torch.zeros(1, 8, dtype=torch.int32)
    atoms[0, 3] = 99
    with pytest.raises(ValueError, match="got an atom of 99 queries from row 0"):
        ops.flash_attn_by_atoms(q.clone(), q, cache[:, :, 0], cache[:, :, 1], atoms, 1.0, True)
    with pytest.raises(ValueError, match=r"got rows outside \[0, 2\)"):
        slots = torch.tensor([[5], [0]], dtype=torch.int32)
        counts = torch.zeros(2, dtype=torch.int32)
        ops.moe_gather(torch.ones(2, 8), torch.ones(2, 8), torch.ones(2, 1), slots, counts, False)


def test_on_a_gpu_deepspeeds_own_is_taken() -> None:
    assert builder_class("RaggedOpsBuilder", "cuda") is None
