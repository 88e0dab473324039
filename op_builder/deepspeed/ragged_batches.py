"""deepspeed 0.19.8's module of operations on ragged batches, with its function names and arguments, for the CPU.

For a batch of sequences in progress, ``batch_metadata`` has the numbers of tokens and of sequences, ``seq_metadata`` one
row per sequence (its first token's row, its tokens, its earlier tokens, unused), ``tokens_to_seq`` each token's sequence, and
``kv_ptrs`` the address of each sequence's int32 block numbers in the cache. Rows beyond the batch are padding, and do not
change.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ...kernels.functions.outputs import require_writable
from ..arguments import lie_below, require_floats, require_integers, require_like
from .ragged_attention import RaggedAttention, block_numbers, require_on_host
from .ragged_experts import RaggedExperts
from .rotation import frequencies, rotated

__all__ = ["RaggedOpsModule"]


class _Batch(NamedTuple):
    """The locations of a batch's tokens: the sequence of each, and its position there."""

    tokens: int
    sequence: torch.Tensor
    position: torch.Tensor


class RaggedOpsModule(RaggedExperts, RaggedAttention):
    """The module ``ragged_device_ops``: embedding, blocked caches, attention over them, experts, and the rows for logits."""

    def ragged_embed(
        self, embedded_tokens: torch.Tensor, input_ids: torch.Tensor, embedding_weight: torch.Tensor,
        position_embedding_weight: torch.Tensor | None, pos_embed_offset: int, batch_metadata: torch.Tensor,
        seq_metadata: torch.Tensor, tokens_to_seq: torch.Tensor, kv_ptrs: torch.Tensor,
    ) -> None:  # fmt: skip
        """Write the embeddings of the batch's tokens; a token outside the table does not change its row.

        Args:
            embedded_tokens: ``(tokens, channels)``, written.
            input_ids: int32 or int64 ``(tokens,)``.
            embedding_weight: ``(vocabulary, channels)``.
            position_embedding_weight: ``(positions, channels)``, added by a token's position in its sequence, or None.
            pos_embed_offset: added to the positions, which are then clamped to the table.
            batch_metadata: int32 ``(2,)``.
            seq_metadata: int32 ``(sequences, 4)``.
            tokens_to_seq: int32 ``(tokens,)``.
            kv_ptrs: ignored.

        Raises:
            ValueError: when a shape or dtype does not fit.
            RuntimeError: when elements of the output share memory.
        """
        name = "ragged_embed"
        require_integers(name, (1,), input_ids=input_ids)
        require_floats(name, (2,), embedding_weight=embedding_weight)
        vocabulary, channels = embedding_weight.shape
        require_like(name, (input_ids.shape[0], channels), embedding_weight.dtype, embedded_tokens=embedded_tokens)
        require_writable(name, embedded_tokens, embedding_weight)
        batch = _batch(name, input_ids.shape[0], batch_metadata, seq_metadata, tokens_to_seq)
        ids = input_ids[: batch.tokens].long()
        known = (ids >= 0) & (ids < vocabulary)
        rows = embedding_weight[ids[known]]
        if position_embedding_weight is not None:
            require_floats(name, (2,), position_embedding_weight=position_embedding_weight)
            positions = max(position_embedding_weight.shape[0], 1)
            require_like(
                name, (positions, channels), embedding_weight.dtype, position_embedding_weight=position_embedding_weight
            )
            rows += position_embedding_weight[(batch.position[known] + pos_embed_offset).clamp(0, positions - 1)]
        embedded_tokens[: batch.tokens][known] = rows

    def gather_for_logits(
        self, final_token_acts: torch.Tensor, all_acts: torch.Tensor, batch_metadata: torch.Tensor,
        seq_metadata: torch.Tensor,
    ) -> None:  # fmt: skip
        """Write the row of each sequence's last token.

        Args:
            final_token_acts: ``(sequences, channels)``, written.
            all_acts: ``(tokens, channels)``.
            batch_metadata: int32 ``(2,)``.
            seq_metadata: int32 ``(sequences, 4)``.

        Raises:
            ValueError: when a shape or dtype does not fit, or a sequence does not end in the batch.
            RuntimeError: when elements of the output share memory.
        """
        name = "gather_for_logits"
        require_floats(name, (2,), all_acts=all_acts)
        rows = final_token_acts.shape[0] if final_token_acts.dim() else 0
        require_like(name, (rows, all_acts.shape[1]), all_acts.dtype, final_token_acts=final_token_acts)
        require_writable(name, final_token_acts, all_acts)
        _, sequences = _counts(name, batch_metadata)
        _require_rows(name, "sequences", sequences, rows)
        described = _sequences(name, seq_metadata, sequences)
        last = described[:, 0] + described[:, 1] - 1
        _require_range(name, "last tokens", last, all_acts.shape[0])
        final_token_acts[:sequences] = all_acts[last]

    def kv_rotary_embeddings(
        self, kv_cache: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rotary_dim: int,
        theta_base: float, batch_metadata: torch.Tensor, seq_metadata: torch.Tensor, tokens_to_seq: torch.Tensor,
        kv_ptrs: torch.Tensor,
    ) -> None:  # fmt: skip
        """Rotate queries in place, and write rotated keys and values to the cache; see :meth:`linear_kv_copy`.

        Args:
            kv_cache: ``(blocks, block size, 2, key heads, head size)``, written.
            q: ``(tokens, heads * head size)``, rotated.
            k: ``(tokens, key heads * head size)``.
            v: like ``k``.
            rotary_dim: the number of channels of a head to rotate, in halves.
            theta_base: channel ``i`` of a half rotates by ``theta_base ** (-2 * i / rotary_dim)`` per token, in float32.
            batch_metadata: int32 ``(2,)``.
            seq_metadata: int32 ``(sequences, 4)``.
            tokens_to_seq: int32 ``(tokens,)``.
            kv_ptrs: int64 ``(sequences,)``, host addresses.

        Raises:
            ValueError: when a shape or dtype does not fit, or a block number is not in the cache.
        """
        if rotary_dim < 2 or rotary_dim % 2 or not theta_base > 0:
            msg = (
                f"kv_rotary_embeddings failed: got rotary_dim={rotary_dim} and theta_base={theta_base}; expected an even number "
                f"and a positive one. Fix: pass rotary_dim={max(rotary_dim // 2 * 2, 2)} and theta_base=10000.0."
            )
            raise ValueError(msg)
        about = (batch_metadata, seq_metadata, tokens_to_seq, kv_ptrs)
        _write_cache("kv_rotary_embeddings", kv_cache, (q, k, v), frequencies(theta_base, rotary_dim, q.device), about)

    def kv_trained_rotary_embeddings(
        self, kv_cache: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, inv_freq: torch.Tensor,
        batch_metadata: torch.Tensor, seq_metadata: torch.Tensor, tokens_to_seq: torch.Tensor, kv_ptrs: torch.Tensor,
    ) -> None:  # fmt: skip
        """Like :meth:`kv_rotary_embeddings`, but channel ``i`` of a half rotates by ``inv_freq[i]`` per token.

        Args:
            kv_cache: the same as for :meth:`kv_rotary_embeddings`; written.
            q: the same; written.
            k: the same.
            v: the same.
            inv_freq: float32 ``(rotary_dim / 2,)``.
            batch_metadata: the same.
            seq_metadata: the same.
            tokens_to_seq: the same.
            kv_ptrs: the same.
        """
        require_like("kv_trained_rotary_embeddings", (inv_freq.numel(),), torch.float32, inv_freq=inv_freq)
        about = (batch_metadata, seq_metadata, tokens_to_seq, kv_ptrs)
        _write_cache("kv_trained_rotary_embeddings", kv_cache, (q, k, v), inv_freq, about)

    def linear_kv_copy(
        self, kv_cache: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, batch_metadata: torch.Tensor,
        seq_metadata: torch.Tensor, tokens_to_seq: torch.Tensor, kv_ptrs: torch.Tensor,
    ) -> None:  # fmt: skip
        """Write keys and values to their locations in the cache; the arguments are those of :meth:`kv_rotary_embeddings`."""
        about = (batch_metadata, seq_metadata, tokens_to_seq, kv_ptrs)
        _write_cache("linear_kv_copy", kv_cache, (q, k, v), None, about)


def _write_cache(
    function: str, kv_cache: torch.Tensor, projected: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    inv_freq: torch.Tensor | None, about: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:  # fmt: skip
    q, k, v = projected
    require_floats(function, (5,), kv_cache=kv_cache)
    require_floats(function, (2,), q=q, k=k, v=v)
    blocks, block_size, _, key_heads, head_size = kv_cache.shape
    rows, channels = q.shape
    require_like(function, (blocks, block_size, 2, key_heads, head_size), q.dtype, kv_cache=kv_cache)
    require_like(function, (rows, key_heads * head_size), q.dtype, k=k, v=v)
    turned = 2 * inv_freq.numel() if inv_freq is not None else 0
    if head_size == 0 or channels % head_size or turned > head_size:
        msg = (
            f"{function} failed: got queries of {channels} channels, heads of {head_size} and {turned} rotated channels; "
            f"expected whole heads, and no more rotated channels than a head has. Fix: pass q of "
            f"(tokens, heads * {head_size}), and at most {head_size // 2} frequencies."
        )
        raise ValueError(msg)
    require_writable(function, kv_cache, k)
    if inv_freq is not None:
        require_writable(function, q, k)
    batch = _batch(function, rows, *about[:3])
    block = _blocks_of(function, batch, about[3], blocks, block_size)
    keys, queries = (part[: batch.tokens].unflatten(1, (-1, head_size)) for part in (k, q))
    angles = batch.position[:, None, None] * inv_freq if inv_freq is not None else None
    place = batch.position % block_size
    kv_cache[block, place, 0] = keys if angles is None else rotated(keys, angles)
    kv_cache[block, place, 1] = v[: batch.tokens].unflatten(1, (-1, head_size))
    if angles is not None:  # last, as the values may be in the same memory
        queries.copy_(rotated(queries, angles))


def _blocks_of(function: str, batch: _Batch, kv_ptrs: torch.Tensor, blocks: int, block_size: int) -> torch.Tensor:
    """Return the block of each token."""
    if batch.tokens == 0:
        return batch.position
    sequences = int(batch.sequence.max()) + 1
    require_like(function, (kv_ptrs.numel(),), torch.int64, kv_ptrs=kv_ptrs)
    require_on_host(function, kv_ptrs)
    if kv_ptrs.shape[0] < sequences or block_size == 0:
        msg = (
            f"{function} failed: got addresses of {kv_ptrs.shape[0]} sequences and blocks of {block_size}; expected "
            f"{sequences} and 1 or more. Fix: pass the address of a list of blocks for each sequence of the batch."
        )
        raise ValueError(msg)
    ordinals = batch.position // block_size
    numbers = torch.empty_like(ordinals)
    for sequence, address in enumerate(kv_ptrs[:sequences].tolist()):
        own = batch.sequence == sequence
        if own.any():
            numbers[own] = block_numbers(function, address, int(ordinals[own].max()) + 1, blocks)[ordinals[own]]
    return numbers


def _batch(
    function: str, rows: int, batch_metadata: torch.Tensor, seq_metadata: torch.Tensor, tokens_to_seq: torch.Tensor
) -> _Batch:
    tokens, sequences = _counts(function, batch_metadata)
    _require_rows(function, "tokens", tokens, rows)
    require_integers(function, (1,), tokens_to_seq=tokens_to_seq)
    described = _sequences(function, seq_metadata, sequences)
    sequence = tokens_to_seq[:tokens].long()
    if sequence.shape[0] != tokens:
        msg = (
            f"{function} failed: got tokens_to_seq for {sequence.shape[0]} tokens; expected {tokens}. "
            f"Fix: pass the batch's whole tokens_to_seq."
        )
        raise ValueError(msg)
    _require_range(function, "numbers of sequences", sequence, sequences)
    position = described[sequence, 2] + torch.arange(tokens, device=sequence.device) - described[sequence, 0]
    _require_range(function, "places in a sequence", position, 2**31)
    return _Batch(tokens, sequence, position)


def _counts(function: str, batch_metadata: torch.Tensor) -> tuple[int, int]:
    require_like(function, (2,), torch.int32, batch_metadata=batch_metadata)
    _require_range(function, "numbers of tokens and sequences", batch_metadata, 2**31)
    tokens, sequences = batch_metadata.tolist()
    return tokens, sequences


def _require_rows(function: str, what: str, count: int, rows: int) -> None:
    """Check that there is a row for each token or sequence; later rows are padding."""
    if count > rows:
        msg = (
            f"{function} failed: got {rows} rows for a batch of {count} {what}; expected a row for each. "
            f"Fix: pass the whole batch's tensors, or the metadata of this part."
        )
        raise ValueError(msg)


def _sequences(function: str, seq_metadata: torch.Tensor, sequences: int) -> torch.Tensor:
    require_integers(function, (2,), seq_metadata=seq_metadata)
    if seq_metadata.shape[0] < sequences or seq_metadata.shape[1] != 4:
        msg = (
            f"{function} failed: got seq_metadata of shape {tuple(seq_metadata.shape)} for {sequences} sequences; expected four "
            f"numbers per sequence. Fix: pass the metadata of this batch."
        )
        raise ValueError(msg)
    return seq_metadata[:sequences].long()


def _require_range(function: str, what: str, numbers: torch.Tensor, end: int) -> None:
    if not lie_below(numbers, end):
        msg = (
            f"{function} failed: got {what} from {numbers.min()} to {numbers.max()}; expected 0 to {end - 1}. Fix: pass the "
            f"metadata of this batch."
        )
        raise ValueError(msg)
