"""Functions of deepspeed's transformer inference that rearrange their input: padding, heads, and rotary embedding."""

from __future__ import annotations

import torch

from ..arguments import require_floats
from .rotation import frequencies, rotated

__all__ = ["TransformerLayouts", "heads_of", "padded"]

_PADDED_KEYS = 128


class TransformerLayouts:
    """deepspeed's layout functions, with its names."""

    def add_padding(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> list[torch.Tensor]:
        """Return the three tensors, zero-padded to a head size of 32, 64 or 128; keys and values also to 128 tokens.

        Args:
            query: ``(batch, heads, tokens, head size)``.
            key: like ``query``, with its own number of tokens, at most 128.
            value: like ``key``.

        Raises:
            ValueError: when a shape or dtype does not fit.
        """
        _require_of_attention("add_padding", (4,), query, key, value)
        rows = (query.shape[2], _PADDED_KEYS, _PADDED_KEYS)
        return [padded("add_padding", x, row) for x, row in zip((query, key, value), rows, strict=True)]

    add_padding_fp32 = add_padding_fp16 = add_padding_bf16 = add_padding

    def pad_transform(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, heads: int, add_padding: bool
    ) -> list[torch.Tensor]:
        """Return the three tensors, split by heads: ``(batch, heads, tokens, head size)``.

        Args:
            query: ``(batch, tokens, channels)``.
            key: like ``query``, with its own number of tokens.
            value: like ``key``.
            heads: the number of heads.
            add_padding: whether to pad the results like :meth:`add_padding`.

        Raises:
            ValueError: when a shape or dtype does not fit.
        """
        _require_of_attention("pad_transform", (3,), query, key, value)
        parts = [heads_of("pad_transform", x, heads) for x in (query, key, value)]
        return self.add_padding(*parts) if add_padding else [part.contiguous() for part in parts]

    pad_transform_fp32 = pad_transform_fp16 = pad_transform_bf16 = pad_transform

    def apply_rotary_pos_emb(
        self, mixed_query: torch.Tensor, key_layer: torch.Tensor, rotary_dim: int, offset: int, num_heads: int,
        rotate_half: bool, rope_theta: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """Return the rotated queries, and the keys with the first of them rotated.

        Args:
            mixed_query: of shape ``(batch, tokens, heads * head size)``, in memory ``(batch, heads, tokens, head size)``.
            key_layer: in memory ``(batch, heads, tokens of the cache, head size)``; the first two may be one.
            rotary_dim: the number of channels of a head to rotate, in halves.
            offset: the position of the first token.
            num_heads: the number of heads.
            rotate_half: ignored; each channel rotates with the one half of ``rotary_dim`` away.
            rope_theta: channel ``i`` of a half rotates by ``rope_theta ** (-2 * i / rotary_dim)`` per token.

        Raises:
            ValueError: when a shape does not fit.
        """
        name = "apply_rotary_pos_emb"
        require_floats(name, (3,), mixed_query=mixed_query)
        require_floats(name, (3, 4), key_layer=key_layer)
        query, key = (x.clone(memory_format=torch.contiguous_format) for x in (mixed_query, key_layer))
        batch, tokens, channels = query.shape
        rows, size = batch * num_heads, channels // max(num_heads, 1)
        is_of_batch = key.shape[0] == batch or (key.shape[0] == rows and key.shape[-1] == size)
        is_right = num_heads > 0 and channels % num_heads == 0 and 2 <= rotary_dim <= size and rotary_dim % 2 == 0
        if (
            not (is_right and is_of_batch)
            or rows * size == 0
            or key.numel() % (rows * size)
            or key.numel() < query.numel()
        ):
            msg = (
                f"{name} failed: got queries of shape {tuple(query.shape)}, keys of {tuple(key.shape)}, {num_heads} heads and "
                f"rotary_dim={rotary_dim}; expected one batch, whole heads, an even number of a head's channels, and keys for "
                f"each token. Fix: pass the model's number of heads, and a rotary_dim of at most {size}."
            )
            raise ValueError(msg)
        inv_freq = frequencies(rope_theta, rotary_dim, query.device)
        angles = torch.arange(offset, offset + tokens, device=query.device)[:, None] * inv_freq
        for x in (query.view(rows, tokens, size), key.view(rows, -1, size)[:, :tokens]):
            x.copy_(rotated(x, angles))
        return query, key


def _require_of_attention(
    function: str, dims: tuple[int, ...], query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> None:
    """Check that keys and values are alike, and differ from the queries in the number of tokens only."""
    require_floats(function, dims, query=query, key=key, value=value)
    expected = (*query.shape[:-2], *key.shape[-2:-1], query.shape[-1])
    if tuple(key.shape) != expected or value.shape != key.shape:
        msg = (
            f"{function} failed: got queries of shape {tuple(query.shape)}, keys of {tuple(key.shape)} and values of "
            f"{tuple(value.shape)}; expected {expected} for keys and values. Fix: pass the three of one attention."
        )
        raise ValueError(msg)


def heads_of(function: str, x: torch.Tensor, heads: int) -> torch.Tensor:
    """Return ``(batch, tokens, channels)`` as ``(batch, heads, tokens, head size)``."""
    require_floats(function, (3,), x=x)
    if heads < 1 or x.shape[2] % heads:
        msg = (
            f"{function} failed: got {x.shape[2]} channels and {heads} heads; expected a multiple. "
            f"Fix: pass the number of heads that this process has."
        )
        raise ValueError(msg)
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(1, 2)


def padded(function: str, x: torch.Tensor, rows: int) -> torch.Tensor:
    """Return ``(..., tokens, head size)``, zero-padded to a number of rows, and to a head size of 32, 64 or 128."""
    tokens, size = x.shape[-2:]
    wide = next((width for width in (32, 64, 128) if size < width), 128)
    if tokens > rows or size > wide:
        msg = (
            f"{function} failed: got {tokens} tokens of heads of {size}; expected at most {rows} of {wide}. "
            f"Fix: pass the tensors without padding to an attention that takes this size."
        )
        raise ValueError(msg)
    return torch.nn.functional.pad(x, (0, wide - size, 0, rows - tokens))
