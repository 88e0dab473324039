"""The implementations of attention: torch's own, and the package ``flash-attn``."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from ..engine.errors import OpLoadError
from ..kernel_extensions import KernelExtension, has_device, require_package

_CAUSAL = (2, 3)
"""Colossal-AI's ``AttnMaskType`` values: causal, and causal with padding."""

__all__ = ["FlashAttentionPackageExtension", "FlashAttentionSDPAExtension"]


class FlashAttentionSDPAExtension(KernelExtension):
    """Attention by torch, on every device."""

    name = "flash_attention_sdpa"
    support_aot = False
    support_jit = False

    def is_available(self) -> bool:
        return True

    def assert_compatible(self) -> None:
        pass

    def load(self) -> Any:
        return _sdpa


class FlashAttentionPackageExtension(KernelExtension):
    """Attention by the package ``flash-attn``, on NVIDIA GPUs, in float16 and bfloat16, without a mask."""

    name = "flash_attention_package"
    priority = 10
    support_aot = False
    support_jit = False

    def is_available(self) -> bool:
        return has_device("cuda")  # anyaccel: ignore[device-name]

    def assert_compatible(self) -> None:
        require_package(self.name, "flash_attn", "flash-attn")

    def load(self) -> Any:
        try:
            import flash_attn
        except ImportError as error:
            msg = (
                f"loading '{self.name}' failed: flash-attn is installed but cannot be imported: {error}. "
                f"Fix: pip install --force-reinstall --no-build-isolation flash-attn"
            )
            raise OpLoadError(msg) from error

        return partial(_by_package, flash_attn)


def _sdpa(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float = 0.0, scale: float | None = None,
    attention_mask: torch.Tensor | None = None, is_causal: bool = False, cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_kv: torch.Tensor | None = None, max_seqlen_q: int | None = None, max_seqlen_kv: int | None = None,
    q_indices: torch.Tensor | None = None, kv_indices: torch.Tensor | None = None, *,
    attn_mask: torch.Tensor | None = None, attention_mask_type: Any = None,
) -> torch.Tensor:  # fmt: skip
    """Return scaled dot-product attention.

    Args:
        q: ``(batch, heads, positions, head_dim)``, of any floating dtype.
        k: ``(batch, kv_heads, kv_positions, head_dim)``; if it has fewer heads, each serves a group of query heads.
        v: like ``k``.
        dropout_p: the probability of dropping a weight.
        scale: the factor for the scores; ``1 / sqrt(head_dim)`` by default.
        attention_mask: added to the scores, or if boolean, False hides a position. With three dimensions, it applies
            to every head.
        is_causal: hide later positions.
        cu_seqlens_q: given together with ``q_indices`` when the batch is padded; only the indices are read.
        cu_seqlens_kv: see ``cu_seqlens_q``.
        max_seqlen_q: see ``cu_seqlens_q``.
        max_seqlen_kv: see ``cu_seqlens_q``.
        q_indices: int64, the positions among ``batch * positions`` that are not padding; the result is 0 elsewhere.
        kv_indices: int64, the positions among ``batch * kv_positions`` that are not padding; the others are hidden.
        attn_mask: ``attention_mask`` under torch's name.
        attention_mask_type: Colossal-AI's ``AttnMaskType``, or its number; 2 and 3 mean ``is_causal``.

    Returns:
        ``(batch, heads, positions, head_dim)``.

    Source: torch.nn.functional.scaled_dot_product_attention
    """
    from torch.nn.functional import scaled_dot_product_attention

    mask = attn_mask if attention_mask is None else attention_mask
    if mask is not None and mask.dim() == 3:
        mask = mask[:, None]
    if mask is None and kv_indices is not None:
        mask = _among(kv_indices, k.shape[0], k.shape[2])[:, None, None]
    is_causal = is_causal or _is_causal(attention_mask_type)
    if is_causal and mask is not None:
        mask, is_causal = _causal_too(mask, q.shape[2], k.shape[2]), False
    attended = scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale,
        enable_gqa=k.shape[-3] != q.shape[-3],
    )  # fmt: skip
    if q_indices is None:
        return attended
    kept = _among(q_indices, q.shape[0], q.shape[2])[:, None, :, None]
    return attended.masked_fill(~kept, 0.0)


def _by_package(
    package: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float = 0.0,
    scale: float | None = None, attention_mask: torch.Tensor | None = None, is_causal: bool = False,
    cu_seqlens_q: torch.Tensor | None = None, cu_seqlens_kv: torch.Tensor | None = None,
    max_seqlen_q: int | None = None, max_seqlen_kv: int | None = None, q_indices: torch.Tensor | None = None,
    kv_indices: torch.Tensor | None = None, *, attn_mask: torch.Tensor | None = None, attention_mask_type: Any = None,
) -> torch.Tensor:  # fmt: skip
    """Return attention by ``flash-attn``; the arguments are those of :func:`_sdpa`, and padding needs all six of its own."""
    is_padded = cu_seqlens_q is not None and q_indices is not None and kv_indices is not None
    if attn_mask is not None or (attention_mask is not None and not is_padded):
        name = "attn_mask" if attn_mask is not None else "attention_mask"
        msg = (
            f"attention failed: flash-attn does not support {name}. "
            f"Fix: pass it to FlashAttentionWithCustomMaskLoader().load() instead."
        )
        raise NotImplementedError(msg)
    options = {"dropout_p": dropout_p, "softmax_scale": scale, "causal": is_causal or _is_causal(attention_mask_type)}
    by_position = [tensor.transpose(1, 2) for tensor in (q, k, v)]
    if not is_padded:
        attended: torch.Tensor = package.flash_attn_func(*by_position, **options).transpose(1, 2)
        return attended
    rows = [tensor.flatten(0, 1) for tensor in by_position]
    taken = [rows[0][q_indices], rows[1][kv_indices], rows[2][kv_indices]]
    lengths = (cu_seqlens_q, cu_seqlens_kv, max_seqlen_q, max_seqlen_kv)
    result = package.flash_attn_varlen_func(*taken, *lengths, **options)
    padded = rows[0].new_zeros(rows[0].shape).index_copy(0, q_indices, result)  # type: ignore[arg-type]
    by_batch: torch.Tensor = padded.unflatten(0, by_position[0].shape[:2])
    return by_batch.transpose(1, 2)


def _is_causal(attention_mask_type: Any) -> bool:
    return getattr(attention_mask_type, "value", attention_mask_type) in _CAUSAL


def _among(indices: torch.Tensor, batch: int, positions: int) -> torch.Tensor:
    """Return a boolean ``(batch, positions)`` tensor of the positions that the flattened indices name."""
    kept = indices.new_zeros(batch * positions, dtype=torch.bool)
    return kept.index_fill(0, indices.long(), True).view(batch, positions)


def _causal_too(mask: torch.Tensor, queries: int, keys: int) -> torch.Tensor:
    earlier = torch.ones(queries, keys, dtype=torch.bool, device=mask.device).tril()
    return mask & earlier if mask.dtype == torch.bool else mask.masked_fill(~earlier, -torch.inf)
