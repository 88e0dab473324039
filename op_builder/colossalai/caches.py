"""Paged caches of keys and values: the location of each token's entry, and attention over them, by torch operators.

A cache of values is ``(blocks, heads, block_size, head_dim)``. A cache of keys is the same or, in Colossal-AI's newer kernels,
``(blocks, heads, head_dim / x, block_size, x)``. A uint8 cache holds 8-bit floats, e5m2. A negative block number in a
table means that there is no block, and nothing is written.
"""

from __future__ import annotations

import torch

from ...kernels.functions.autocast import without_autocast
from ..arguments import require_floats, require_integers, require_lengths

__all__ = ["convert_float8", "paged_attention", "require_caches", "token_positions", "write_tokens"]

_CODES = torch.float8_e5m2
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def require_caches(
    function: str, caches: tuple[torch.Tensor, torch.Tensor], lengths: torch.Tensor, block_tables: torch.Tensor,
    tokens: tuple[int, ...],
) -> None:  # fmt: skip
    """Check caches, tables and lengths against each other, and against the shape of the data to read or write.

    Args:
        function: the function that was called, for the message.
        caches: the key cache and the value cache.
        lengths: the sequence lengths.
        block_tables: ``(sequences, blocks)``.
        tokens: ``(tokens, a multiple of the cached heads, head_dim)``.

    Raises:
        ValueError: naming the argument that does not fit.
    """
    keys, values = caches
    require_floats(function, (4, 5), codes=True, key_cache=keys)
    require_floats(function, (4,), codes=True, value_cache=values)
    require_integers(function, (1,), sequence_lengths=lengths)
    require_integers(function, (2,), block_tables=block_tables)
    blocks, heads, size, dim = values.shape
    folded = (
        (keys.shape[0], keys.shape[1], keys.shape[3], keys.shape[2] * keys.shape[4]) if keys.dim() == 5 else keys.shape
    )
    fits = tuple(folded) == tuple(values.shape) and len(block_tables) == len(lengths) and tokens[2] == dim
    if not fits or heads == 0 or tokens[1] % heads or size == 0:
        msg = (
            f"{function} failed: got caches of shape {tuple(keys.shape)} and {tuple(values.shape)}, tables of shape "
            f"{tuple(block_tables.shape)}, {len(lengths)} lengths and tokens of shape {tokens}; expected the same "
            f"blocks and heads in both caches, a table and a length for each sequence, and tokens of (tokens, heads, {dim}). "
            f"Fix: pass the caches, tables and lengths that were allocated together."
        )
        raise ValueError(msg)
    require_lengths(function, lengths, 1, block_tables.shape[1] * size)
    if block_tables.numel() and int(block_tables.max()) >= blocks:
        msg = (
            f"{function} failed: got block {int(block_tables.max())} in block_tables; expected 0 to {blocks - 1}. "
            f"Fix: pass tables of this cache's blocks, or a larger cache."
        )
        raise ValueError(msg)


def token_positions(lengths: torch.Tensor, starts: torch.Tensor, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sequence of each token and its position there; tokens outside of all sequences have sequence -1.

    Args:
        lengths: the sequence lengths, int32 or int64 ``(sequences,)``.
        starts: the index of each sequence's first token, and the end of the last, ``(sequences + 1,)``.
        tokens: the number of tokens.
    """
    numbers = torch.arange(tokens, device=lengths.device)
    sequence = torch.searchsorted(starts[1:].contiguous().long(), numbers, right=True)
    inside = sequence.clamp(max=max(len(lengths) - 1, 0))
    position = numbers - starts.long()[inside]
    is_inside = (sequence < len(lengths)) & (position >= 0) & (position < lengths.long()[inside])
    return torch.where(is_inside, inside, -1), position


def write_tokens(
    key: torch.Tensor, value: torch.Tensor, caches: tuple[torch.Tensor, torch.Tensor], sequence: torch.Tensor,
    position: torch.Tensor, block_tables: torch.Tensor,
) -> None:  # fmt: skip
    """Write the keys and values of tokens to their locations in the caches.

    Args:
        key: ``(tokens, heads, head_dim)``.
        value: like ``key``.
        caches: the key cache and the value cache.
        sequence: int64 ``(tokens,)``, each token's row of ``block_tables``; -1 for none.
        position: int64 ``(tokens,)``, the position in the sequence.
        block_tables: ``(sequences, blocks)``, the blocks of each sequence, in order.
    """
    keys, values = caches
    size = values.shape[2]
    kept = sequence >= 0
    blocks = block_tables.long()[sequence[kept], position[kept] // size]
    here = blocks >= 0
    blocks, offsets = blocks[here], (position[kept] % size)[here]
    new_key, new_value = key[kept][here], value[kept][here]
    if keys.dim() == 5:
        keys[blocks, :, :, offsets] = _coded(new_key.unflatten(-1, (-1, keys.shape[-1])), keys.dtype)
    else:
        keys[blocks, :, offsets] = _coded(new_key, keys.dtype)
    values[blocks, :, offsets] = _coded(new_value, values.dtype)


def paged_attention(
    query: torch.Tensor, caches: tuple[torch.Tensor, torch.Tensor], lengths: torch.Tensor, block_tables: torch.Tensor,
    longest: int, scale: float, slopes: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """Return the attention of one query for each sequence over the first ``lengths`` entries of its blocks.

    Args:
        query: ``(sequences, heads, head_dim)``.
        caches: the key cache and the value cache; their head count divides the query's.
        lengths: ``(sequences,)``.
        block_tables: ``(sequences, blocks)``.
        longest: an upper bound of the lengths.
        scale: the factor for the scores.
        slopes: float32 ``(heads,)``, the ALiBi slopes.

    Raises:
        ValueError: on a CPU, when a table has no block for an entry; elsewhere, asking would wait for the device.

    Source: tests/op_builder/test_colossalai_inference.py
    """
    keys, values = caches
    taken = block_tables[:, : -(-longest // values.shape[2])].long()
    begins = torch.arange(taken.shape[1], device=taken.device) * values.shape[2]
    if taken.device.type == "cpu" and bool(((taken < 0) & (begins < lengths[:, None])).any()):
        msg = (
            "attention over a cache failed: got a negative block in block_tables before the end of its sequence; expected "
            "a block for every entry. Fix: pass the tables with which the entries were written, or smaller lengths."
        )
        raise ValueError(msg)
    taken = taken.clamp(min=0)
    of_keys = keys[taken].permute(0, 2, 1, 4, 3, 5).flatten(4) if keys.dim() == 5 else keys[taken].transpose(1, 2)
    held = [entries.flatten(2, 3) for entries in (of_keys, values[taken].transpose(1, 2))]
    distance = torch.arange(held[0].shape[2], device=query.device)[None] - (lengths.long() - 1)[:, None]
    is_later = (distance > 0)[:, None, :, None]  # a cache may hold anything there, including NaN
    held_keys, held_values = (_decoded(entries, query.dtype).masked_fill(is_later, 0.0) for entries in held)
    bias = torch.zeros_like(distance, dtype=query.dtype).masked_fill(distance > 0, -torch.inf)[:, None, None]
    if slopes is not None:
        bias = bias + (slopes[None, :, None, None] * distance[:, None, None]).to(query.dtype)
    with without_autocast(query):
        attended = torch.nn.functional.scaled_dot_product_attention(
            query[:, :, None], held_keys, held_values, attn_mask=bias, scale=scale,
            enable_gqa=held_keys.shape[1] != query.shape[1],
        )  # fmt: skip
    return attended[:, :, 0]


def convert_float8(x: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Convert floats to 8-bit float codes or back, into an output like ``convert_fp8`` does, and return it.

    Raises:
        ValueError: unless one tensor is uint8 and the other float32, float16 or bfloat16.
    """
    require_floats("convert_fp8", tuple(range(9)), codes=True, x=x, output=output)
    kinds = {x.dtype, output.dtype}
    if torch.uint8 not in kinds or not kinds & set(_FLOATS):
        msg = (
            f"convert_fp8 failed: got {x.dtype} and {output.dtype}; expected torch.uint8, and float32, float16 or bfloat16. "
            f"Fix: pass output=torch.empty_like(x, dtype=torch.{'float16' if x.dtype == torch.uint8 else 'uint8'})."
        )
        raise ValueError(msg)
    return _coded(x, torch.uint8) if output.dtype == torch.uint8 else _decoded(x, output.dtype)


def _coded(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.to(_CODES).view(torch.uint8) if dtype == torch.uint8 and x.dtype != torch.uint8 else x.to(dtype)


def _decoded(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.contiguous().view(_CODES).to(dtype) if x.dtype == torch.uint8 else x.to(dtype)
