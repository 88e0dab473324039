"""deepspeed 0.19.8's inference module, with its function names and arguments, on this project's kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...kernels.functions.autocast import without_autocast
from ...kernels.functions.outputs import write_output, write_outputs
from ..arguments import require_floats, require_like

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...kernels.functions.activations import ActivationFunctions
    from ...kernels.functions.normalization import LayerNormFunctions, RMSNormFunctions

__all__ = ["InferenceCoreModule"]

_GELU, _RELU, _SILU, _GEGLU, _REGLU, _SIGLU, _IDENTITY = range(7)


class InferenceCoreModule:
    """deepspeed's module ``inference_core_ops``, except for its matrix product with 6-bit weights.

    Norms work on rows of ``(tokens, channels)``. ``gamma`` and ``beta`` are the weights, ``(channels,)``, and ``eps`` is added to
    the variance or the mean square. Outputs have the input's shape and dtype, and are written.
    """

    def __init__(
        self, rms_norm: RMSNormFunctions, layer_norm: LayerNormFunctions, activations: ActivationFunctions
    ) -> None:
        self._rms_norm, self._layer_norm, self._activations = rms_norm, layer_norm, activations

    def create_handle(self) -> None:
        """Do nothing: torch manages the handles of its matrix products."""

    def blas_linear(self, output: torch.Tensor, hidden_states: torch.Tensor, weights: torch.Tensor) -> None:
        """Write ``hidden_states @ weights.T``.

        Args:
            output: ``(..., out)``, written.
            hidden_states: ``(tokens, in)``, or ``(batch, tokens, in)``.
            weights: ``(out, in)``, with the same dtype as the others.

        Raises:
            ValueError: when the input or the weights do not fit.
            RuntimeError: when the output does not.
        """
        require_floats("blas_linear", (2, 3), hidden_states=hidden_states)
        require_floats("blas_linear", (2,), weights=weights)
        _require_products("blas_linear", hidden_states, weights.t())
        with without_autocast(weights):
            product = torch.nn.functional.linear(hidden_states, weights)
        write_output("blas_linear", output, product)

    def blas_4d_matmul(self, c: torch.Tensor, b: torch.Tensor, a: torch.Tensor) -> None:
        """Write ``a @ b`` to ``c``.

        Args:
            c: ``(..., n, m)``, written.
            b: ``(..., k, m)``, with the same dimensions before the last two.
            a: ``(..., n, k)``.

        Raises:
            ValueError: when a or b does not fit.
            RuntimeError: when c does not.
        """
        require_floats("blas_4d_matmul", (2, 3, 4), a=a, b=b)
        _require_products("blas_4d_matmul", a, b)
        if a.shape[:-2] != b.shape[:-2]:
            raise _no_products("blas_4d_matmul", a, b)
        with without_autocast(a):
            product = torch.matmul(a, b)
        write_output("blas_4d_matmul", c, product)

    def rms_norm(self, norm_output: torch.Tensor, norm_input: torch.Tensor, gamma: torch.Tensor, eps: float) -> None:
        """Write the rows of ``norm_input``, divided by their root mean square and scaled, to ``norm_output``.

        Args:
            norm_output: like ``norm_input``; written.
            norm_input: ``(..., channels)``; float32, bfloat16 or float16.
            gamma: the weight, ``(channels,)``, of norm_input's dtype.
            eps: added to the mean square.

        Raises:
            RuntimeError: when a shape, dtype or device does not fit.
        """
        write_output("rms_norm", norm_output, self._rms_norm.rms_norm(norm_input, gamma, eps))

    def rms_pre_norm(
        self, norm_output: torch.Tensor, residual_output: torch.Tensor, norm_input: torch.Tensor,
        residual_input: torch.Tensor, gamma: torch.Tensor, eps: float,
    ) -> None:  # fmt: skip
        """Write ``norm_input + residual_input`` to ``residual_output``, and the normalised sum to ``norm_output``.

        Args:
            norm_output: like ``norm_input``; written.
            residual_output: like ``norm_input``; written.
            norm_input: ``(..., channels)``; float32, bfloat16 or float16.
            residual_input: like ``norm_input``.
            gamma: the weight, ``(channels,)``, of norm_input's dtype.
            eps: added to the mean square.

        Raises:
            RuntimeError: when a shape, dtype or device does not fit.
        """
        normalised, total = self._rms_norm.add_rms_norm(norm_input, residual_input, gamma, eps)
        write_outputs("rms_pre_norm", (norm_output, normalised), (residual_output, total))

    def layer_norm(
        self, output: torch.Tensor, norm_input: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, eps: float
    ) -> None:
        """Write the normalised rows of ``norm_input`` to ``output``.

        Args:
            output: like ``norm_input``; written.
            norm_input: ``(..., channels)``; float32, bfloat16 or float16.
            gamma: the weight, ``(channels,)``, of norm_input's dtype.
            beta: the bias, like ``gamma``.
            eps: added to the variance.

        Raises:
            RuntimeError: when a shape, dtype or device does not fit.
        """
        write_output("layer_norm", output, self._layer_norm.layer_norm(norm_input, gamma, beta, eps))

    def pre_layer_norm(
        self, res_output: torch.Tensor, norm_output: torch.Tensor, norm_input: torch.Tensor, residual: torch.Tensor,
        gamma: torch.Tensor, beta: torch.Tensor, eps: float,
    ) -> None:  # fmt: skip
        """Write the sum of ``norm_input`` and ``residual`` to ``res_output``, and the normalised sum to ``norm_output``.

        Args:
            res_output: like ``norm_input``; written.
            norm_output: like ``norm_input``; written.
            norm_input: ``(..., channels)``; float32, bfloat16 or float16.
            residual: like ``norm_input``.
            gamma: the weight, ``(channels,)``, of norm_input's dtype.
            beta: the bias, like ``gamma``.
            eps: added to the variance.

        Raises:
            RuntimeError: when a shape, dtype or device does not fit.
        """
        normalised, total = self._layer_norm.add_layer_norm(norm_input, residual, gamma, beta, eps)
        write_outputs("pre_layer_norm", (norm_output, normalised), (res_output, total))

    def post_layer_norm(
        self, output: torch.Tensor, norm_input: torch.Tensor, residual: torch.Tensor, gamma: torch.Tensor,
        beta: torch.Tensor, eps: float,
    ) -> None:  # fmt: skip
        """Write the normalised sum of ``norm_input`` and ``residual`` to ``output``.

        Args:
            output: like ``norm_input``; written.
            norm_input: ``(..., channels)``; float32, bfloat16 or float16.
            residual: like ``norm_input``.
            gamma: the weight, ``(channels,)``, of norm_input's dtype.
            beta: the bias, like ``gamma``.
            eps: added to the variance.

        Raises:
            RuntimeError: when a shape, dtype or device does not fit.
        """
        normalised, _ = self._layer_norm.add_layer_norm(norm_input, residual, gamma, beta, eps)
        write_output("post_layer_norm", output, normalised)

    def bias_activation(self, activation: torch.Tensor, bias: torch.Tensor | None, act_type: int) -> None:
        """Apply an activation to ``activation + bias``, in place.

        Args:
            activation: ``(..., channels)``; written.
            bias: ``(channels,)``, or None.
            act_type: 0 for GELU (tanh), 1 for ReLU, 2 for SiLU, 6 for none.

        Raises:
            NotImplementedError: for any other activation.
        """
        if act_type == _GELU:
            given = activation.new_zeros(activation.shape[-1:]) if bias is None else bias
            write_output("bias_activation", activation, self._activations.bias_gelu(activation, given))
            return
        functions: dict[int, Callable[[torch.Tensor], torch.Tensor]] = {
            _RELU: torch.relu,
            _SILU: torch.nn.functional.silu,
            _IDENTITY: torch.Tensor.clone,
        }
        if act_type not in functions:
            raise _unknown("bias_activation", act_type, [_GELU, *functions])
        given = _biased("bias_activation", activation, bias)
        write_output("bias_activation", activation, functions[act_type](given))

    def gated_activation(
        self, output: torch.Tensor, activation: torch.Tensor, bias: torch.Tensor | None, act_type: int
    ) -> None:
        """Write ``act(even channels) * odd channels`` of ``activation + bias``.

        Args:
            output: ``(..., channels)``; written.
            activation: ``(..., 2 * channels)``.
            bias: ``(2 * channels,)``, or None.
            act_type: 3 for GEGLU (tanh), 4 for ReGLU, 5 for SiGLU.

        Raises:
            NotImplementedError: for any other activation.
        """
        given = _biased("gated_activation", activation, bias)
        gate, up = given[..., ::2].contiguous(), given[..., 1::2].contiguous()
        if act_type == _GEGLU:
            result = self._activations.geglu(gate, up, "tanh")
        elif act_type == _SIGLU:
            result = self._activations.swiglu(gate, up)
        elif act_type == _REGLU:
            result = gate.relu() * up
        else:
            raise _unknown("gated_activation", act_type, [_GEGLU, _REGLU, _SIGLU])
        write_output("gated_activation", output, result)


def _biased(function: str, activation: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    if bias is None:
        return activation
    channels = bias.reshape(-1) if bias.numel() == activation.shape[-1] else bias  # as deepspeed's callers may pass it
    require_like(function, tuple(activation.shape[-1:]), activation.dtype, bias=channels)
    return activation + channels


def _require_products(function: str, rows: torch.Tensor, columns: torch.Tensor) -> None:
    if rows.shape[-1] != columns.shape[-2] or rows.dtype != columns.dtype:
        raise _no_products(function, rows, columns)


def _no_products(function: str, rows: torch.Tensor, columns: torch.Tensor) -> ValueError:
    return ValueError(
        f"{function} failed: got a product of {tuple(rows.shape)}, {rows.dtype}, and {tuple(columns.shape)}, {columns.dtype}; "
        f"expected the same inner size, batch and dtype. Fix: pass both in the layout that the arguments' description gives."
    )


def _unknown(function: str, act_type: int, known: list[int]) -> NotImplementedError:
    return NotImplementedError(
        f"{function} failed: got activation {act_type}; expected one of {sorted(known)}. Fix: choose one of them."
    )
