"""Colossal-AI's mixture-of-experts module, where experts have a fixed capacity, with its function names and arguments.

A token goes to one or two places: ``dest_idx[j, token]`` is a place in ``experts * capacity``, valid if
``mask[j, token]`` is not 0. The functions use torch operators; the kernels of ``topk_gating`` … ``combine`` need no capacity.
"""

from __future__ import annotations

import torch

from ..arguments import lie_below, require_floats, require_integers
from .module import ColossalAIModule

__all__ = ["MoeModule"]


class MoeModule(ColossalAIModule):
    """The module ``moe``."""

    def cumsum_sub_one(self, mask: torch.Tensor) -> torch.Tensor:
        """Return the cumulative sums over the first dimension, minus 1: each token's index among the tokens of its expert.

        Args:
            mask: int32 ``(tokens, experts)``.

        Raises:
            ValueError: when the dtype or the number of dimensions differs.
        """
        require_integers("cumsum_sub_one", (2,), mask=mask)
        if mask.dtype != torch.int32:
            msg = (
                f"cumsum_sub_one failed: got {mask.dtype} of shape {tuple(mask.shape)}; expected torch.int32, "
                f"(tokens, experts). Fix: pass mask.to(torch.int32)."
            )
            raise ValueError(msg)
        return torch.cumsum(mask, 0, dtype=torch.int32) - 1

    def dispatch_forward(
        self, s: int, ec: int, h: int, batch_tokens: torch.Tensor, mask: torch.Tensor, dest_idx: torch.Tensor
    ) -> torch.Tensor:
        """Return the tokens at their places, ``(ec, h)``; a place without a token is 0.

        Args:
            s: the number of tokens.
            ec: the number of places.
            h: the size of a token.
            batch_tokens: ``(s, h)``.
            mask: int32 ``(1 or 2, s)``.
            dest_idx: int32, shaped like the mask.

        Raises:
            ValueError: when a shape does not fit.
        """
        tokens = _of_shape("dispatch_forward", "batch_tokens", batch_tokens, (s, h))
        places = _places("dispatch_forward", mask, dest_idx, s, ec)
        found = tokens.new_zeros(ec + 1, h)  # masked tokens share a last place, which is left out
        for place in places:
            found.index_copy_(0, place, tokens)
        return found[:ec]

    def dispatch_backward(
        self, s: int, ec: int, h: int, expert_grad: torch.Tensor, mask: torch.Tensor, dest_idx: torch.Tensor
    ) -> torch.Tensor:
        """Return the gradient of the tokens, ``(s, h)``: for each token, the sum over its places.

        Args:
            s: the number of tokens.
            ec: the number of places.
            h: the size of a token.
            expert_grad: ``(ec, h)``, the gradient of the result of :meth:`dispatch_forward`.
            mask: as in :meth:`dispatch_forward`.
            dest_idx: as in :meth:`dispatch_forward`.

        Raises:
            ValueError: when a shape does not fit.
        """
        rows = _with_zeros(_of_shape("dispatch_backward", "expert_grad", expert_grad, (ec, h)))
        places = _places("dispatch_backward", mask, dest_idx, s, ec)
        return torch.stack([rows[place] for place in places]).sum(0)

    def combine_forward(
        self, s: int, e: int, c: int, h: int, expert_tokens: torch.Tensor, logits: torch.Tensor, mask: torch.Tensor,
        dest_idx: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """Return each token's rows, weighted by its experts' logits and summed, ``(s, h)``.

        Args:
            s: the number of tokens.
            e: the number of experts.
            c: the capacity of an expert.
            h: the size of a token.
            expert_tokens: ``(e * c, h)``, or ``(e, c, h)``.
            logits: ``(s, e)``.
            mask: int32 ``(1 or 2, s)``.
            dest_idx: int32, shaped like the mask.

        Raises:
            ValueError: when a shape does not fit.
        """
        rows = _with_zeros(_of_shape("combine_forward", "expert_tokens", expert_tokens, (e * c, h)))
        weights = _of_shape("combine_forward", "logits", logits, (s, e))
        places = _places("combine_forward", mask, dest_idx, s, e * c)
        return torch.stack([rows[place] * _weight(weights, place, c) for place in places]).sum(0)

    def combine_backward(
        self, s: int, e: int, c: int, h: int, tokens_grad: torch.Tensor, expert_tokens: torch.Tensor,
        logits: torch.Tensor, mask: torch.Tensor, dest_idx: torch.Tensor,
    ) -> list[torch.Tensor]:  # fmt: skip
        """Return the gradients of the experts' tokens ``(e * c, h)`` and of the logits ``(s, e)``.

        Args:
            s: the number of tokens.
            e: the number of experts.
            c: the capacity of an expert.
            h: the size of a token.
            tokens_grad: ``(s, h)``, the gradient of the result of :meth:`combine_forward`.
            expert_tokens: as in :meth:`combine_forward`.
            logits: ``(s, e)``.
            mask: int32 ``(1 or 2, s)``.
            dest_idx: int32, shaped like the mask.

        Raises:
            ValueError: when a shape does not fit.
        """
        grad = _of_shape("combine_backward", "tokens_grad", tokens_grad, (s, h))
        rows = _with_zeros(_of_shape("combine_backward", "expert_tokens", expert_tokens, (e * c, h)))
        weights = _of_shape("combine_backward", "logits", logits, (s, e))
        of_rows, of_weights = rows.new_zeros(e * c + 1, h), weights.new_zeros(s, e + 1)
        for place in _places("combine_backward", mask, dest_idx, s, e * c):
            of_rows.index_copy_(0, place, (grad * _weight(weights, place, c)).to(of_rows.dtype))
            products = (grad.float() * rows[place].float()).sum(1, keepdim=True)
            of_weights.scatter_(1, (place // max(c, 1)).clamp(max=e)[:, None], products.to(weights.dtype))
        return [of_rows[: e * c], of_weights[:, :e]]


def _weight(weights: torch.Tensor, place: torch.Tensor, capacity: int) -> torch.Tensor:
    """Return the weight of each token's expert, ``(tokens, 1)``; a masked token gets any weight, and a row of zeros."""
    expert = (place // max(capacity, 1)).clamp(max=max(weights.shape[1] - 1, 0))
    return weights.gather(1, expert[:, None])


def _with_zeros(rows: torch.Tensor) -> torch.Tensor:
    """Return the rows followed by a row of zeros, for tokens without a place."""
    return torch.cat([rows, rows.new_zeros(1, rows.shape[1])])


def _of_shape(function: str, name: str, tensor: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    require_floats(function, (2, 3), **{name: tensor})  # type: ignore[arg-type]
    if tuple(tensor.flatten(0, -2).shape) != shape:
        msg = (
            f"{function} failed: got {name} of shape {tuple(tensor.shape)}; expected {shape}. "
            f"Fix: pass the rows of the same tokens and experts as in the other arguments."
        )
        raise ValueError(msg)
    return tensor.reshape(shape)


def _places(function: str, mask: torch.Tensor, dest_idx: torch.Tensor, tokens: int, places: int) -> torch.Tensor:
    """Return the place of each choice and token, int64; masked ones get the place after the last.

    On a CPU, others must lie below that; elsewhere, asking would wait for the device.
    """
    require_integers(function, (2,), mask=mask, dest_idx=dest_idx)
    if mask.shape != dest_idx.shape or mask.shape[0] not in (1, 2) or mask.shape[1] != tokens:
        msg = (
            f"{function} failed: got a mask of shape {tuple(mask.shape)} and dest_idx of shape {tuple(dest_idx.shape)}; "
            f"expected (1 or 2, {tokens}) for both. Fix: pass a row for each choice of an expert, and a column for each token."
        )
        raise ValueError(msg)
    if dest_idx.device.type == "cpu" and not lie_below(dest_idx[mask != 0], places):
        msg = (
            f"{function} failed: got a place in dest_idx below 0 or above {places - 1}; expected one of {places}. "
            f"Fix: set the mask of tokens without a place to 0."
        )
        raise ValueError(msg)
    return torch.where(mask != 0, dest_idx, places).long()
