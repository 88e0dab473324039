"""Colossal-AI's layer normalisation and softmax modules, with its function names and arguments, on this project's kernels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..arguments import require_floats
from .module import ColossalAIModule

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

__all__ = ["LayerNormModule", "ScaledMaskedSoftmaxModule", "ScaledUpperTriangleMaskedSoftmaxModule"]


class LayerNormModule(ColossalAIModule):
    """The module ``layernorm``."""

    def forward_affine(
        self,
        x: torch.Tensor,
        normalized_shape: Sequence[int],
        gamma: torch.Tensor,
        beta: torch.Tensor,
        epsilon: float,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the normalised input, and the values that :meth:`backward_affine` needs.

        Args:
            x: the input; its last dimensions are ``normalized_shape``; float32, bfloat16 or float16.
            normalized_shape: the dimensions that form a row.
            gamma: the weights, of shape ``normalized_shape``; the result has their dtype.
            beta: the biases, like ``gamma``.
            epsilon: added to the variance.

        Returns:
            The output; and each row's mean and inverse standard deviation, float32 ``(rows,)``.

        Raises:
            RuntimeError: when shapes or dtypes do not fit.
        """
        rows, columns = _rows("forward_affine", x, normalized_shape)
        _require_shapes("forward_affine", tuple(normalized_shape), gamma=gamma, beta=beta)
        given = x.to(gamma.dtype).reshape(rows, columns)
        y, mean, inverse = self._functions._ops.layer_norm.default(given, gamma.reshape(-1), beta.reshape(-1), epsilon)
        return y.view(x.shape), mean, inverse

    def backward_affine(
        self, dout: torch.Tensor, mean: torch.Tensor, invvar: torch.Tensor, x: torch.Tensor,
        normalized_shape: Sequence[int], gamma: torch.Tensor, beta: torch.Tensor, epsilon: float,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
        """Return the gradients of x, gamma and beta.

        Args:
            dout: the gradient of the output, with its shape and dtype.
            mean: as returned by :meth:`forward_affine`.
            invvar: as returned by :meth:`forward_affine`.
            x: as passed to :meth:`forward_affine`.
            normalized_shape: the dimensions that form a row.
            gamma: the weights.
            beta: the biases; only the shape is used.
            epsilon: ignored: ``invvar`` includes it.

        Raises:
            RuntimeError: when shapes or dtypes do not fit.
        """
        rows, columns = _rows("backward_affine", x, normalized_shape)
        require_floats("backward_affine", tuple(range(1, 9)), x=x, dout=dout)
        _require_shapes("backward_affine", tuple(x.shape), dout=dout)
        _require_shapes("backward_affine", (rows,), mean=mean, invvar=invvar)
        _require_shapes("backward_affine", tuple(normalized_shape), gamma=gamma, beta=beta)
        given, grad = (tensor.to(gamma.dtype).reshape(rows, columns) for tensor in (x, dout))
        backward = self._functions._ops.layer_norm_backward.default
        grad_input, grad_gamma, grad_beta = backward(grad, None, given, gamma.reshape(-1), mean, invvar)
        return grad_input.to(x.dtype).view(x.shape), grad_gamma.view(gamma.shape), grad_beta.view(beta.shape)


class ScaledMaskedSoftmaxModule(ColossalAIModule):
    """The module ``scaled_masked_softmax``."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor, scale_factor: float) -> torch.Tensor:
        """Return the softmax of the scaled scores over the last dimension, without the masked scores.

        Args:
            x: ``(batch, heads, queries, keys)``.
            mask: ``(batch or 1, 1, queries, keys)``; nonzero hides a score.
            scale_factor: the factor for the scores.

        Source: anyaccel.ops.scaled_masked_softmax
        """
        require_floats("scaled_masked_softmax", (4,), x=x)
        batch = 1 if mask.shape[:1] == (1,) else x.shape[0]
        _require_shapes("scaled_masked_softmax", (batch, 1, *x.shape[2:]), mask=mask)
        y: torch.Tensor = self._functions.scaled_masked_softmax(x, mask.bool(), scale_factor)
        return y

    def backward(self, output_grads: torch.Tensor, softmax_results: torch.Tensor, scale_factor: float) -> torch.Tensor:
        """Return the gradient of the scores; Colossal-AI overwrites ``output_grads``, this function does not.

        Args:
            output_grads: the gradient of the result.
            softmax_results: the result.
            scale_factor: as passed to :meth:`forward`.
        """
        grad: torch.Tensor = self._functions._ops.softmax_backward.default(output_grads, softmax_results, scale_factor)
        return grad

    def get_batch_per_block(self, query_seq_len: int, key_seq_len: int, batches: int, attn_heads: int) -> int:
        """Return the divisor that the number of rows must have: always 1, as every number is supported."""
        return 1


class ScaledUpperTriangleMaskedSoftmaxModule(ColossalAIModule):
    """The module ``scaled_upper_triang_masked_softmax``."""

    def forward(self, x: torch.Tensor, scale_factor: float) -> torch.Tensor:
        """Return the softmax of the scaled scores ``(heads, queries, keys)``; no query sees the keys after it.

        Source: anyaccel.ops.scaled_upper_triang_masked_softmax
        """
        y: torch.Tensor = self._functions.scaled_upper_triang_masked_softmax(x, scale_factor)
        return y

    backward = ScaledMaskedSoftmaxModule.backward


def _require_shapes(function: str, shape: tuple[int, ...], **tensors: torch.Tensor) -> None:
    for name, tensor in tensors.items():
        if tensor.shape != shape:
            msg = (
                f"{function} failed: got {name} of shape {tuple(tensor.shape)}; expected {tuple(shape)}. "
                f"Fix: pass the {name} of this input."
            )
            raise RuntimeError(msg)


def _rows(function: str, x: torch.Tensor, normalized_shape: Sequence[int]) -> tuple[int, int]:
    shape = tuple(normalized_shape)
    if not shape or tuple(x.shape[-len(shape) :]) != shape:
        msg = (
            f"{function} failed: got an input of shape {tuple(x.shape)} and normalized_shape {shape}; expected the input's last "
            f"dimensions. Fix: pass normalized_shape={tuple(x.shape[-1:])} for the last dimension."
        )
        raise RuntimeError(msg)
    return math.prod(x.shape[: -len(shape)]), math.prod(shape)
