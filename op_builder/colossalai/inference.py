"""Colossal-AI's inference module, with its function names and arguments, on this project's kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...kernels.functions.outputs import require_apart, require_writable, write_output, write_outputs
from ..arguments import require_floats, require_integers, require_lengths, require_like
from .caches import convert_float8, paged_attention, require_caches, token_positions, write_tokens

if TYPE_CHECKING:
    from ...kernels.functions.activations import ActivationFunctions
    from ...kernels.functions.normalization import RMSNormFunctions
    from ...kernels.functions.rotary_embedding import RotaryEmbeddingFunctions

__all__ = ["InferenceOps"]


class InferenceOps:
    """The module ``inference_ops``; ``caches.py`` describes its paged caches.

    Args:
        rms_norm: the functions of the op ``rms_norm``.
        activations: the functions of the op ``activations``.
        rotary_embedding: the functions of the op ``rotary_embedding``.
    """

    def __init__(
        self, rms_norm: RMSNormFunctions, activations: ActivationFunctions, rotary_embedding: RotaryEmbeddingFunctions
    ) -> None:
        self._rms_norm, self._activations, self._rotary = rms_norm, activations, rotary_embedding

    def silu_and_mul(self, ins: torch.Tensor) -> torch.Tensor:
        """Return ``silu(first half) * second half`` along the first dimension; a result with one entry drops it."""
        gate, up = ins.chunk(2, 0)
        y = self._activations.swiglu(gate, up)
        return y.squeeze(0) if y.shape[0] == 1 else y

    def rms_layernorm(self, out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> None:
        """Write the normalised input to ``out``."""
        write_output("rms_layernorm", out, self._rms_norm.rms_norm(x, weight, epsilon))

    def fused_add_rms_layernorm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float
    ) -> None:
        """Add x to ``residual`` in place, and write the normalised sum to ``x``."""
        normalised, total = self._rms_norm.add_rms_norm(x, residual, weight, epsilon)
        write_outputs("fused_add_rms_layernorm", (x, normalised), (residual, total))

    def rotary_embedding(
        self, query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, high_precision: bool = False
    ) -> None:
        """Rotate ``(tokens, heads, head_dim)`` by each token's angles, in place; always computed in float32."""
        require_floats("rotary_embedding", (3,), query=query, key=key)
        require_floats("rotary_embedding", (2,), cos=cos, sin=sin)
        pairs = query.shape[-1] // 2
        if key.shape[-1] != query.shape[-1] or cos.shape != sin.shape:
            msg = (
                f"rotary_embedding failed: got queries of shape {tuple(query.shape)}, keys of {tuple(key.shape)}, cos of "
                f"{tuple(cos.shape)} and sin of {tuple(sin.shape)}; expected one head_dim, and cos and sin alike. "
                f"Fix: pass the queries and keys of one attention, and what get_cos_and_sin wrote for them."
            )
            raise ValueError(msg)
        angles = cos[:, :pairs], sin[:, :pairs]
        for tensor in (query, key):  # both are checked before one is written
            require_writable("rotary_embedding", tensor, cos)
            with torch.no_grad():
                self._rotary.rotary_embedding(tensor[None, :, :0], *angles, inplace=True)
        for tensor in (query, key):
            self._rotary.rotary_embedding(tensor[None], *angles, inplace=True)

    def rotary_embedding_and_cache_copy(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor,
        key_cache: torch.Tensor, value_cache: torch.Tensor, sequence_lengths: torch.Tensor, block_tables: torch.Tensor,
        high_precision: bool = False,
    ) -> None:  # fmt: skip
        """Rotate the query in place, and write the rotated key and the value as each sequence's last entry; ``key`` is unchanged.

        Args:
            query: ``(sequences, heads, head_dim)``, of each sequence's last token.
            key: ``(sequences, kv_heads, head_dim)``.
            value: like the key.
            cos: ``(sequences, head_dim)``; only the first half is read.
            sin: like ``cos``.
            key_cache: the key cache, written.
            value_cache: the value cache, written.
            sequence_lengths: ``(sequences,)``, including this token.
            block_tables: ``(sequences, blocks)``.
            high_precision: ignored: it is always computed in float32.
        """
        require_floats("rotary_embedding_and_cache_copy", (3,), query=query, key=key, value=value)
        caches = (key_cache, value_cache)
        self._require("rotary_embedding_and_cache_copy", key, value, caches, sequence_lengths, block_tables)
        turned = key.clone()
        self.rotary_embedding(query, turned, cos, sin, high_precision)
        self.decode_kv_cache_memcpy(turned, value, key_cache, value_cache, sequence_lengths, block_tables)

    def decode_kv_cache_memcpy(
        self, key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor,
        sequence_lengths: torch.Tensor, block_tables: torch.Tensor,
    ) -> None:  # fmt: skip
        """Write the keys and values of each sequence's last token to the caches; see :meth:`rotary_embedding_and_cache_copy`."""
        self._require("decode_kv_cache_memcpy", key, value, (key_cache, value_cache), sequence_lengths, block_tables)
        sequences = torch.arange(len(sequence_lengths), device=key.device)
        write_tokens(key, value, (key_cache, value_cache), sequences, sequence_lengths.long() - 1, block_tables)

    def context_kv_cache_memcpy(
        self, key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor,
        sequence_lengths: torch.Tensor, cu_seqlens: torch.Tensor, block_tables: torch.Tensor, max_seq_len_in_batch: int,
    ) -> None:  # fmt: skip
        """Write the keys and values of whole sequences to the caches.

        Args:
            key: ``(tokens, kv_heads, head_dim)``, for all sequences in order.
            value: like the key.
            key_cache: the key cache, written.
            value_cache: the value cache, written.
            sequence_lengths: ``(sequences,)``.
            cu_seqlens: ``(sequences + 1,)``, the first token of each sequence, and the end of the last.
            block_tables: ``(sequences, blocks)``.
            max_seq_len_in_batch: ignored: the lengths give it.
        """
        function = "context_kv_cache_memcpy"
        self._require(function, key, value, (key_cache, value_cache), sequence_lengths, block_tables)
        require_integers(function, (1,), cu_seqlens=cu_seqlens)
        if len(cu_seqlens) != len(sequence_lengths) + 1:
            msg = (
                f"{function} failed: got {len(cu_seqlens)} entries of cu_seqlens; expected {len(sequence_lengths) + 1}, one more "
                f"than the number of lengths. Fix: pass the running sum of the lengths, with a 0 in front."
            )
            raise ValueError(msg)
        sequence, position = token_positions(sequence_lengths, cu_seqlens, len(key))
        write_tokens(key, value, (key_cache, value_cache), sequence, position, block_tables)

    def get_cos_and_sin(
        self, cos_cache: torch.Tensor, sin_cache: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor,
        sequence_lengths: torch.Tensor, max_seq_len_in_batch: int, is_prompts: bool,
    ) -> None:  # fmt: skip
        """Write each token's angles: for all tokens of prompts, or for each sequence's last token.

        Args:
            cos_cache: ``(positions, head_dim)``.
            sin_cache: like ``cos_cache``.
            cos: ``(tokens, head_dim)``, written; it may have more rows, which do not change.
            sin: like ``cos``.
            sequence_lengths: ``(sequences,)``.
            max_seq_len_in_batch: ignored.
            is_prompts: whether the tokens are whole sequences, one after another.
        """
        function = "get_cos_and_sin"
        require_floats(function, (2,), cos_cache=cos_cache, sin_cache=sin_cache, cos=cos, sin=sin)
        require_integers(function, (1,), sequence_lengths=sequence_lengths)
        require_like(function, tuple(cos_cache.shape), cos_cache.dtype, sin_cache=sin_cache)
        require_lengths(function, sequence_lengths, 0 if is_prompts else 1, len(cos_cache))
        position = sequence_lengths.long() - 1
        if is_prompts:
            starts = torch.nn.functional.pad(sequence_lengths.long().cumsum(0), (1, 0))
            _, position = token_positions(sequence_lengths, starts, int(starts[-1]))
        taken = [cache[position] for cache in (cos_cache, sin_cache)]
        outputs = [output[: len(position)] for output in (cos, sin)]
        write_outputs(function, *zip(outputs, taken, strict=True))

    def flash_decoding_attention(
        self, out: torch.Tensor, query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor,
        context_lens: torch.Tensor, block_tables: torch.Tensor, block_size: int, max_context_len: int,
        tmp_out: torch.Tensor, exp_sums: torch.Tensor, max_logits: torch.Tensor, alibi_slopes: torch.Tensor | None,
        scale: float,
    ) -> None:  # fmt: skip
        """Write the attention of each sequence's query over its cached entries; gathers the entries first.

        Args:
            out: ``(sequences, heads, head_dim)``, written.
            query: like ``out``, read.
            key_cache: the keys.
            value_cache: the values.
            context_lens: ``(sequences,)``.
            block_tables: ``(sequences, blocks)``.
            block_size: ignored: the caches give it.
            max_context_len: an upper bound of the lengths.
            tmp_out: ignored.
            exp_sums: ignored.
            max_logits: ignored.
            alibi_slopes: float32 ``(heads,)``, or None.
            scale: the factor for the scores.
        """
        caches, function = (key_cache, value_cache), "flash_decoding_attention"
        require_floats(function, (3,), query=query, out=out)
        require_caches(function, caches, context_lens, block_tables, tuple(query.shape))
        require_like(function, (len(context_lens), *query.shape[1:]), query.dtype, query=query)
        if alibi_slopes is not None:
            require_like(function, (query.shape[1],), torch.float32, alibi_slopes=alibi_slopes)
        require_lengths(function, context_lens, 1, max_context_len)
        attended = paged_attention(query, caches, context_lens, block_tables, max_context_len, scale, alibi_slopes)
        write_output(function, out, attended)

    def convert_fp8(self, x: torch.Tensor, output: torch.Tensor) -> None:
        """Convert floats to 8-bit floats (e5m2) in uint8, or back, into ``output``."""
        write_output("convert_fp8", output, convert_float8(x, output))

    def _require(
        self, function: str, key: torch.Tensor, value: torch.Tensor, caches: tuple[torch.Tensor, torch.Tensor],
        lengths: torch.Tensor, block_tables: torch.Tensor,
    ) -> None:  # fmt: skip
        require_floats(function, (3,), key=key, value=value)
        require_caches(function, caches, lengths, block_tables, tuple(key.shape))
        for cache in caches:
            require_writable(function, cache, key)
        require_apart(function, caches)
        if key.shape != value.shape or key.shape[1] != caches[1].shape[1]:
            msg = (
                f"{function} failed: got keys of shape {tuple(key.shape)} and values of shape {tuple(value.shape)}; expected "
                f"both (tokens, {caches[1].shape[1]}, head_dim). Fix: pass both as "
                f"tensor.view(-1, {caches[1].shape[1]}, head_dim)."
            )
            raise ValueError(msg)
