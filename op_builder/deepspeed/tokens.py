"""deepspeed 0.19.8's module for random layerwise token dropping, with its function names and arguments, on torch operators."""

from __future__ import annotations

import torch

from ...kernels.functions.outputs import require_writable
from ..arguments import lie_below

__all__ = ["RandomLTDModule"]


class RandomLTDModule:
    """The module ``random_ltd``: the tokens that a layer keeps, and their rows. Any device and dtype."""

    def token_sort_(self, unsorted_token_ids: torch.Tensor, original_tokens: int) -> torch.Tensor:
        """Sort each row of token numbers, in place.

        Args:
            unsorted_token_ids: integers ``(layers, batch, kept)``, each below ``original_tokens``.
            original_tokens: the number of tokens in a sequence.

        Returns:
            ``unsorted_token_ids``.

        Raises:
            ValueError: when the shape or dtype does not fit, more tokens are kept than exist, or, on a CPU, one does not exist.
        """
        _require_integers("token_sort_", unsorted_token_ids, 3, "(layers, batch, kept)")
        if unsorted_token_ids.shape[2] > original_tokens:
            msg = (
                f"token_sort_ failed: got {unsorted_token_ids.shape[2]} kept tokens of {original_tokens}; expected no more than "
                f"the number of tokens. Fix: pass unsorted_token_ids[:, :, :{original_tokens}]."
            )
            raise ValueError(msg)
        if unsorted_token_ids.device.type == "cpu" and not lie_below(unsorted_token_ids, original_tokens):
            msg = (
                f"token_sort_ failed: got token numbers below 0 or above {original_tokens - 1}; expected numbers of the "
                f"{original_tokens} tokens. Fix: pass the original_tokens from which they were drawn."
            )
            raise ValueError(msg)
        return unsorted_token_ids.copy_(unsorted_token_ids.sort(-1).values)

    def token_gather(self, activations: torch.Tensor, sorted_indices: torch.Tensor, batch_first: bool) -> torch.Tensor:
        """Return the rows of the kept tokens.

        Args:
            activations: ``(batch, tokens, channels)``, or ``(tokens, batch, channels)``.
            sorted_indices: integers ``(batch, kept)``.
            batch_first: whether the batch is the first dimension.

        Returns:
            ``(batch, kept, channels)``, or ``(kept, batch, channels)``, contiguous.

        Raises:
            ValueError: when the shapes do not fit.
            IndexError: on the CPU, when a token number is out of range.
        """
        return activations[_rows("token_gather", activations, sorted_indices, batch_first)].contiguous()

    def token_scatter_(
        self, all_activations: torch.Tensor, layer_activations: torch.Tensor, sorted_indices: torch.Tensor,
        batch_first: bool,
    ) -> torch.Tensor:  # fmt: skip
        """Write the rows of the kept tokens back to their original rows. Return ``all_activations``.

        Args:
            all_activations: ``(batch, tokens, channels)``, or ``(tokens, batch, channels)``; written.
            layer_activations: the result of :meth:`token_gather`, processed by a layer; of the same shape and dtype.
            sorted_indices: integers ``(batch, kept)``, unique in each row.
            batch_first: whether the batch is the first dimension.

        Raises:
            ValueError: when the shapes do not fit, or the dtypes differ.
            RuntimeError: when elements of ``all_activations`` share memory.
            IndexError: on the CPU, when a token number is out of range; nothing is written.
        """
        rows = _rows("token_scatter_", all_activations, sorted_indices, batch_first)
        require_writable("token_scatter_", all_activations, layer_activations)
        batch, kept = sorted_indices.shape
        expected = (batch, kept) if batch_first else (kept, batch)
        if (
            layer_activations.shape != (*expected, all_activations.shape[2])
            or layer_activations.dtype != all_activations.dtype
        ):
            msg = (
                f"token_scatter_ failed: got rows of shape {tuple(layer_activations.shape)} and {layer_activations.dtype}; "
                f"expected {(*expected, all_activations.shape[2])} and {all_activations.dtype}. Fix: pass what token_gather "
                f"returned for these tokens."
            )
            raise ValueError(msg)
        all_activations[rows] = layer_activations
        return all_activations

    def mask_gather_bert(self, dense_mask: torch.Tensor, sorted_indices: torch.Tensor) -> torch.Tensor:
        """Return the masks of the kept tokens, for each layer.

        Args:
            dense_mask: ``(batch, 1, tokens, tokens)``.
            sorted_indices: integers ``(layers, batch, kept)``.

        Returns:
            ``(layers, batch, 1, kept, kept)``.

        Raises:
            ValueError: when the shapes do not fit.
            IndexError: on the CPU, when a token number is out of range.
        """
        _require_mask("mask_gather_bert", dense_mask)
        _require_integers("mask_gather_bert", sorted_indices, 3, "(layers, batch, kept)")
        batch = dense_mask.shape[0]
        _require_batch("mask_gather_bert", sorted_indices.shape[1], batch)
        kept = sorted_indices.long()
        _require_below("mask_gather_bert", kept, dense_mask.shape[3])
        numbers = torch.arange(batch, device=dense_mask.device)[None, :, None, None]
        return dense_mask[numbers, 0, kept[..., :, None], kept[..., None, :]].unsqueeze(2)

    def mask_gather_gpt(self, dense_mask: torch.Tensor, truncated_seq_len: int) -> torch.Tensor:
        """Return the part of a causal mask for a shorter sequence, contiguous.

        Args:
            dense_mask: ``(batch, 1, tokens, tokens)``.
            truncated_seq_len: the length of the shorter sequence.

        Raises:
            ValueError: when the mask has another shape, or is shorter.
        """
        _require_mask("mask_gather_gpt", dense_mask)
        if not 0 <= truncated_seq_len <= dense_mask.shape[3]:
            msg = (
                f"mask_gather_gpt failed: got truncated_seq_len={truncated_seq_len} and a mask of {dense_mask.shape[3]} tokens; "
                f"expected no more than the mask's tokens. Fix: pass truncated_seq_len={dense_mask.shape[3]} at most."
            )
            raise ValueError(msg)
        return dense_mask[:, :, :truncated_seq_len, :truncated_seq_len].contiguous()


def _rows(
    function: str, activations: torch.Tensor, sorted_indices: torch.Tensor, batch_first: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the two indices of the kept tokens' rows."""
    _require_integers(function, sorted_indices, 2, "(batch, kept)")
    if activations.dim() != 3:
        msg = (
            f"{function} failed: got activations of shape {tuple(activations.shape)}; expected three dimensions. Fix: pass "
            f"(batch, tokens, channels), or (tokens, batch, channels) with batch_first=False."
        )
        raise ValueError(msg)
    _require_batch(function, sorted_indices.shape[0], activations.shape[0 if batch_first else 1])
    kept = sorted_indices.long()
    tokens = activations.shape[1 if batch_first else 0]
    _require_below(function, kept, tokens)
    numbers = torch.arange(sorted_indices.shape[0], device=sorted_indices.device)
    return (numbers[:, None], kept) if batch_first else (kept.t().contiguous(), numbers)


def _require_below(function: str, kept: torch.Tensor, tokens: int) -> None:
    if kept.device.type == "cpu" and not lie_below(kept, tokens):
        msg = (
            f"{function} failed: got token numbers from {kept.min()} to {kept.max()}; expected 0 to {tokens - 1}. Fix: pass "
            f"the numbers of existing tokens."
        )
        raise IndexError(msg)


def _require_integers(function: str, tensor: torch.Tensor, dimensions: int, shape: str) -> None:
    if tensor.dim() != dimensions or tensor.dtype not in (torch.int32, torch.int64):
        msg = (
            f"{function} failed: got token numbers of shape {tuple(tensor.shape)} and {tensor.dtype}; expected {shape} of int32 "
            f"or int64. Fix: pass the numbers that token_sort_ returned, or tensor.to(torch.int32)."
        )
        raise ValueError(msg)


def _require_mask(function: str, mask: torch.Tensor) -> None:
    if mask.dim() != 4 or mask.shape[1] != 1 or mask.shape[2] != mask.shape[3]:
        msg = (
            f"{function} failed: got a mask of shape {tuple(mask.shape)}; expected (batch, 1, tokens, tokens). "
            f"Fix: pass mask[:, None] if the dimension of 1 is missing."
        )
        raise ValueError(msg)


def _require_batch(function: str, found: int, expected: int) -> None:
    if found != expected:
        msg = (
            f"{function} failed: got token numbers for a batch of {found}; expected {expected}. "
            f"Fix: pass a row of numbers for each sequence of the batch."
        )
        raise ValueError(msg)
