"""The norms and activations of deepspeed's transformer inference, on this project's kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..arguments import require_floats, require_like

if TYPE_CHECKING:
    from ...kernels.functions.activations import ActivationFunctions
    from ...kernels.functions.normalization import LayerNormFunctions, RMSNormFunctions

__all__ = ["TransformerNorms", "biased", "require_bias"]

_GELU, _RELU, _GATED_GELU, _GATED_SILU = 1, 2, 3, 4


class TransformerNorms:
    """Norms of ``(..., channels)``, and the activations between an MLP's products.

    ``gamma`` and ``beta`` are the weights of a norm, ``(channels,)``, and ``epsilon`` is added to the
    variance or the mean square.
    """

    def __init__(
        self, rms_norm: RMSNormFunctions, layer_norm: LayerNormFunctions, activations: ActivationFunctions
    ) -> None:
        self._rms_norm, self._layer_norm, self._activations = rms_norm, layer_norm, activations

    def layer_norm(
        self,
        x: torch.Tensor,
        gamma: torch.Tensor,
        beta: torch.Tensor,
        epsilon: float,
    ) -> torch.Tensor:
        """Return the normalised rows of ``x``.

        Args:
            x: ``(..., channels)``; float32, bfloat16 or float16.
            gamma: the weight, ``(channels,)``, of x's dtype.
            beta: the bias, like ``gamma``.
            epsilon: added to the variance.

        Raises:
            RuntimeError: when a shape, dtype or device does not fit.
        """
        return self._layer_norm.layer_norm(x, gamma, beta, epsilon)

    def layer_norm_residual_store_pre_ln_res(
        self, x: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor, gamma: torch.Tensor,
        beta: torch.Tensor, epsilon: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """Return the normalised sum of x, bias and residual, and the sum.

        Args:
            x: ``(..., channels)``; float32, bfloat16 or float16.
            bias: ``(channels,)``, of x's dtype.
            residual: of x's shape and dtype.
            gamma: the weight, ``(channels,)``, of x's dtype.
            beta: the bias of the norm, like ``gamma``.
            epsilon: added to the variance.

        Raises:
            ValueError: when a shape or dtype does not fit.
        """
        name = "layer_norm_residual_store_pre_ln_res"
        total = _sum(name, x, bias, residual)
        require_like(name, tuple(x.shape[-1:]), x.dtype, gamma=gamma, beta=beta)
        weights = (gamma.float(), beta.float())
        normalised = torch.nn.functional.layer_norm(total, gamma.shape, *weights, eps=epsilon)
        return normalised.to(x.dtype), total.to(x.dtype)

    def _layer_norm_residual(
        self, x: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor, gamma: torch.Tensor,
        beta: torch.Tensor, epsilon: float,
    ) -> torch.Tensor:  # fmt: skip
        """Return the normalised sum of x, bias and residual."""
        return self.layer_norm_residual_store_pre_ln_res(x, bias, residual, gamma, beta, epsilon)[0]

    def rms_norm(self, x: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> torch.Tensor:
        """Return the rows of ``x``, divided by their root mean square and scaled.

        Args:
            x: ``(..., channels)``; float32, bfloat16 or float16.
            gamma: the weight, ``(channels,)``, of x's dtype.
            epsilon: added to the mean square.

        Raises:
            RuntimeError: when a shape, dtype or device does not fit.
        """
        return self._rms_norm.rms_norm(x, gamma, epsilon)

    def pre_rms_norm(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        gamma: torch.Tensor,
        epsilon: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the normalised sum of ``x`` and ``residual``, and the sum.

        Args:
            x: ``(..., channels)``; float32, bfloat16 or float16.
            residual: of x's shape and dtype.
            gamma: the weight, ``(channels,)``, of x's dtype.
            epsilon: added to the mean square.

        Raises:
            RuntimeError: when a shape, dtype or device does not fit.
        """
        return self._rms_norm.add_rms_norm(x, residual, gamma, epsilon)

    def _gated(self, function: str, x: torch.Tensor, activation_type: int) -> torch.Tensor:
        """Return ``first * act(second)`` for the halves: 3 for GELU, 4 for SiLU."""
        require_floats(function, (2, 3), activation=x)
        if x.shape[-1] % 2 or activation_type not in (_GATED_GELU, _GATED_SILU):
            msg = (
                f"{function} failed: got {x.shape[-1]} channels and activation {activation_type}; expected an even number, and 3 "
                f"(GELU) or 4 (SiLU). Fix: pass activation_type=3 or 4, and both halves in the last dimension."
            )
            raise NotImplementedError(msg)
        up, gate = (half.contiguous() for half in x.chunk(2, -1))
        act = self._activations
        return act.geglu(gate, up, "none") if activation_type == _GATED_GELU else act.swiglu(gate, up)

    def _activated(self, function: str, x: torch.Tensor, bias: torch.Tensor, activation_type: int) -> torch.Tensor:
        if activation_type not in (_GELU, _RELU):
            msg = (
                f"{function} failed: got activation {activation_type}; expected 1 (GELU) or 2 (ReLU). "
                f"Fix: pass one of these, or apply the activation with torch.nn.functional."
            )
            raise NotImplementedError(msg)
        return self._activations.bias_gelu(x, bias) if activation_type == _GELU else biased(function, x, bias).relu()


def _sum(function: str, x: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    require_floats(function, (2, 3), x=x)
    require_like(function, tuple(x.shape), x.dtype, residual=residual)
    require_bias(function, x, bias)
    return x.float() + bias.float() + residual.float()


def biased(function: str, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Return the sum of a tensor and a bias that :func:`require_bias` takes."""
    require_bias(function, x, bias)
    return x + bias


def require_bias(function: str, x: torch.Tensor, bias: torch.Tensor) -> None:
    """Check that a bias matches the channels and the dtype of a floating tensor.

    Raises:
        ValueError: when it does not.
    """
    require_floats(function, (2, 3), x=x)
    require_like(function, tuple(x.shape[-1:]), x.dtype, bias=bias)
