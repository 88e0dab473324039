"""The implementations of attention: torch's own, and the package ``flash-attn``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..engine.errors import OpLoadError
from ..kernel_extensions import KernelExtension, has_device, require_package

if TYPE_CHECKING:
    import torch

__all__ = ["FlashAttentionPackageExtension", "FlashAttentionSDPAExtension"]


class FlashAttentionSDPAExtension(KernelExtension):
    """Attention by torch itself, on every device."""

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
    """Attention by the package ``flash-attn``, on NVIDIA's GPUs, in float16 and bfloat16, without a mask."""

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
            from flash_attn import flash_attn_func
        except ImportError as error:
            msg = f"loading '{self.name}' failed: got {error}; expected it to import. Fix: reinstall flash-attn."
            raise OpLoadError(msg) from error

        def attention(
            query: torch.Tensor,
            key: torch.Tensor,
            value: torch.Tensor,
            *,
            attn_mask: torch.Tensor | None = None,
            dropout_p: float = 0.0,
            is_causal: bool = False,
            scale: float | None = None,
        ) -> torch.Tensor:
            if attn_mask is not None:
                msg = (
                    "attention failed: got attn_mask; expected none with flash-attn. "
                    "Fix: FlashAttentionLoader().load(ext_name='flash_attention_sdpa')."
                )
                raise NotImplementedError(msg)
            by_position = (tensor.transpose(1, 2) for tensor in (query, key, value))
            result = flash_attn_func(*by_position, dropout_p=dropout_p, softmax_scale=scale, causal=is_causal)
            attended: torch.Tensor = result.transpose(1, 2)
            return attended

        return attention


def _sdpa(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """Return scaled dot-product attention.

    Args:
        query: ``(batch, heads, positions, head_dim)``, of any floating dtype.
        key: ``(batch, kv_heads, kv_positions, head_dim)``; fewer heads serve a group of the query's each.
        value: as ``key``.
        attn_mask: added to the scores, or where it is boolean, False hides a position.
        dropout_p: the probability of dropping a weight.
        is_causal: hide later positions.
        scale: of the scores; ``1 / sqrt(head_dim)`` by default.

    Returns:
        ``(batch, heads, positions, head_dim)``.

    Source: torch.nn.functional.scaled_dot_product_attention
    """
    from torch.nn.functional import scaled_dot_product_attention

    return scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=attn_mask,
        dropout_p=dropout_p,
        is_causal=is_causal,
        scale=scale,
        enable_gqa=key.shape[-3] != query.shape[-3],
    )
