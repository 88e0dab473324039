"""The functions of deepspeed's transformer inference that contain a matrix product, by torch's."""

from __future__ import annotations

import torch

from ...kernels.functions.autocast import without_autocast
from ...kernels.functions.outputs import require_writable
from ..arguments import require_floats, require_like
from .transformer_layouts import heads_of, padded
from .transformer_norms import TransformerNorms, biased

__all__ = ["TransformerProducts"]

_GELU, _GATED_GELU, _GATED_SILU = 1, 3, 4


class TransformerProducts(TransformerNorms):
    """Matrix products, with the norms before and the activations between them.

    Weights are ``(in, out)``, ``(out, in)`` if ``transposed_mode`` is set, or int8 ``(out, in)`` if ``q_int8`` is set, with
    one scale per group of equal size: ``q_scale``, float32 ``(groups,)``.
    """

    def vector_matmul(
        self, x: torch.Tensor, weight: torch.Tensor, async_op: bool, q_scale: torch.Tensor, q_int8: bool,
        transposed_mode: bool,
    ) -> torch.Tensor:  # fmt: skip
        """Return ``input @ weight``.

        Args:
            x: ``(batch, tokens, in)``.
            weight: see the class.
            async_op: ignored.
            q_scale: float32 ``(groups,)``, used with ``q_int8``.
            q_int8: whether ``weight`` is int8.
            transposed_mode: whether ``weight`` is ``(out, in)``.

        Raises:
            ValueError: when a shape or dtype does not fit.
        """
        return _product("vector_matmul", x, weight, q_scale, q_int8, transposed_mode)

    vector_matmul_fp32 = vector_matmul_fp16 = vector_matmul_bf16 = vector_matmul

    def qkv_gemm(
        self, x: torch.Tensor, weight: torch.Tensor, q_scale: torch.Tensor, bias: torch.Tensor,
        gamma: torch.Tensor, beta: torch.Tensor, epsilon: float, add_bias: bool, q_int8: bool, transposed_mode: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """Return the product of the normalised ``x`` and ``weight``, with ``bias`` if ``add_bias``, and the normalised ``x``.

        Args:
            x: ``(batch, tokens, in)``.
            weight: see the class, as for ``q_scale``, ``q_int8`` and ``transposed_mode``.
            q_scale: see ``weight``.
            bias: ``(out,)``.
            gamma: the norm's weight, ``(in,)``.
            beta: the norm's bias, ``(in,)``.
            epsilon: added to the variance.
            add_bias: whether to add ``bias``.
            q_int8: see ``weight``.
            transposed_mode: see ``weight``.

        Raises:
            ValueError: when a shape or dtype does not fit.
        """
        normalised = self.layer_norm(x, gamma, beta, epsilon)
        product = _product("qkv_gemm", normalised, weight, q_scale, q_int8, transposed_mode)
        return biased("qkv_gemm", product, bias) if add_bias else product, normalised

    qkv_gemm_fp32 = qkv_gemm_fp16 = qkv_gemm_bf16 = qkv_gemm

    def rms_qkv_gemm(
        self, x: torch.Tensor, weight: torch.Tensor, q_scale: torch.Tensor, gamma: torch.Tensor,
        epsilon: float, q_int8: bool, transposed_mode: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """Return what :meth:`qkv_gemm` does, with RMS norm and without a bias."""
        normalised = self.rms_norm(x, gamma, epsilon)
        return _product("rms_qkv_gemm", normalised, weight, q_scale, q_int8, transposed_mode), normalised

    rms_qkv_gemm_fp32 = rms_qkv_gemm_fp16 = rms_qkv_gemm_bf16 = rms_qkv_gemm

    def mlp_gemm(
        self, x: torch.Tensor, residual: torch.Tensor, input_bias: torch.Tensor,
        weight_interm: torch.Tensor, weight_out: torch.Tensor, bias: torch.Tensor, gamma: torch.Tensor,
        beta: torch.Tensor, epsilon: float, pre_layer_norm: bool, mlp_after_attn: bool, q_scale: torch.Tensor,
        q_scale1: torch.Tensor, q_int8: bool, activation_type: int, transposed_mode: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """Return an MLP's output without its last bias, and its input.

        Args:
            x: ``(batch, tokens, channels)``, the output of the attention.
            residual: like ``x``.
            input_bias: ``(channels,)``.
            weight_interm: the first weight; see the class.
            weight_out: the second weight; see the class.
            bias: ``(intermediate,)``.
            gamma: ``(channels,)``.
            beta: ``(channels,)``.
            epsilon: the epsilon of the layer norm.
            pre_layer_norm: ignored.
            mlp_after_attn: normalise the sum of x, bias and residual; otherwise the residual alone.
            q_scale: the scales of the first weight, float32 ``(groups,)``.
            q_scale1: the scales of the second weight, float32 ``(groups,)``.
            q_int8: whether the weights are int8.
            activation_type: 1 for GELU (tanh), 2 for ReLU.
            transposed_mode: whether the weights are ``(out, in)``.

        Raises:
            NotImplementedError: for any other activation.
            ValueError: when a shape or dtype does not fit.
        """
        if mlp_after_attn:
            normalised = self._layer_norm_residual(x, input_bias, residual, gamma, beta, epsilon)
        else:
            normalised = self.layer_norm(residual, gamma, beta, epsilon)
        inner = _product("mlp_gemm", normalised, weight_interm, q_scale, q_int8, transposed_mode)
        inner = self._activated("mlp_gemm", inner, bias, activation_type)
        return _product("mlp_gemm", inner, weight_out, q_scale1, q_int8, transposed_mode), normalised

    mlp_gemm_fp32 = mlp_gemm_fp16 = mlp_gemm_bf16 = mlp_gemm

    def rms_mlp_gemm(
        self, x: torch.Tensor, residual: torch.Tensor, weight_interm: torch.Tensor,
        weight_out: torch.Tensor, gamma: torch.Tensor, epsilon: float, q_scale: torch.Tensor, q_scale1: torch.Tensor,
        q_int8: bool, activation_type: int, transposed_mode: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """Like :meth:`mlp_gemm`, with RMS norm, without biases, and also with gated activations (3 GELU, 4 SiLU).

        Returns:
            The output, and ``residual``, after adding the input in place.
        """
        normalised, total = self.pre_rms_norm(x, residual, gamma, epsilon)
        inner = _product("rms_mlp_gemm", normalised, weight_interm, q_scale, q_int8, transposed_mode)
        if activation_type in (_GATED_GELU, _GATED_SILU):
            inner = self._gated("rms_mlp_gemm", inner, activation_type)
        else:
            inner = self._activated("rms_mlp_gemm", inner, inner.new_zeros(inner.shape[-1:]), activation_type)
        output = _product("rms_mlp_gemm", inner, weight_out, q_scale1, q_int8, transposed_mode)
        require_writable("rms_mlp_gemm", residual, total)
        return output, residual.copy_(total)

    rms_mlp_gemm_fp32 = rms_mlp_gemm_fp16 = rms_mlp_gemm_bf16 = rms_mlp_gemm

    def fused_gemm_gelu(
        self, x: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor, bias: torch.Tensor,
        weight_out: torch.Tensor, weight_out_scale: torch.Tensor, q_int8: bool, transposed_mode: bool,
    ) -> torch.Tensor:  # fmt: skip
        """Return ``gelu(x @ weight + bias) @ weight_out``, with the tanh GELU.

        Args:
            x: ``(batch, tokens, in)``.
            weight: the first weight; see the class.
            weight_scale: the scales of the first weight, float32 ``(groups,)``, if ``q_int8`` is set.
            bias: ``(intermediate,)``.
            weight_out: the second weight; see the class.
            weight_out_scale: the scales of the second weight, like ``weight_scale``.
            q_int8: whether the weights are int8.
            transposed_mode: whether the weights are ``(out, in)``.

        Raises:
            ValueError: when a shape or dtype does not fit.
        """
        inner = _product("fused_gemm_gelu", x, weight, weight_scale, q_int8, transposed_mode)
        inner = self._activated("fused_gemm_gelu", inner, bias, _GELU)
        return _product("fused_gemm_gelu", inner, weight_out, weight_out_scale, q_int8, transposed_mode)

    fused_gemm_gelu_fp32 = fused_gemm_gelu_fp16 = fused_gemm_gelu_bf16 = fused_gemm_gelu

    def linear_layer(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, add_bias: bool, do_flash_attn: bool,
        num_heads: int, transposed_mode: bool, rope_theta: float,
    ) -> torch.Tensor:  # fmt: skip
        """Return ``input @ weight``, with a bias if ``add_bias``.

        Args:
            x: ``(batch, tokens, channels)``.
            weight: see the class; with ``3 * channels`` outputs if ``do_flash_attn``.
            bias: ``(out,)``, of x's dtype.
            add_bias: whether to add the bias.
            do_flash_attn: return ``(3, batch, heads, tokens, head size)`` instead, with heads zero-padded to 32, 64 or 128.
            num_heads: the number of heads of the input.
            transposed_mode: whether ``weight`` is ``(out, in)``.
            rope_theta: ignored.

        Raises:
            ValueError: when a shape or dtype does not fit.
        """
        product = _product("linear_layer", x, weight, None, False, transposed_mode)
        if add_bias:
            product = biased("linear_layer", product, bias)
        if not do_flash_attn:
            return product
        heads = heads_of("linear_layer", product, 3 * num_heads).unflatten(1, (3, num_heads))
        size = heads.shape[-1]
        is_padded = (size % 32 != 0 and size < 64) or size % 64 != 0
        by_kind = heads.transpose(0, 1)
        return (padded("linear_layer", by_kind, by_kind.shape[-2]) if is_padded else by_kind).contiguous()

    linear_layer_fp32 = linear_layer_fp16 = linear_layer_bf16 = linear_layer

    def einsum_sec_sm_ecm(self, dispatch: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Return the sum of tokens for each place of each expert.

        Args:
            dispatch: the weight of each token, ``(tokens, experts, capacity)``.
            tokens: ``(tokens, channels)``, of the same dtype.

        Returns:
            ``(experts, capacity, channels)``.

        Raises:
            ValueError: when a shape or dtype does not fit.
        """
        require_floats("einsum_sec_sm_ecm", (3,), dispatch=dispatch)
        require_like("einsum_sec_sm_ecm", (dispatch.shape[0], *tokens.shape[1:2]), dispatch.dtype, tokens=tokens)
        with without_autocast(tokens):
            return torch.einsum("sec,sm->ecm", dispatch, tokens)

    einsum_sec_sm_ecm_fp32 = einsum_sec_sm_ecm_fp16 = einsum_sec_sm_ecm_bf16 = einsum_sec_sm_ecm

    def dequantize_fp16(self, weight: torch.Tensor, qscale: torch.Tensor, groups: int) -> torch.Tensor:
        """Return int8 weights times their group's scale, in float16.

        Args:
            weight: int8, two dimensions, split into equal groups in row-major order.
            qscale: float32, one number per group.
            groups: the number of groups.

        Raises:
            ValueError: when a shape or dtype does not fit.
        """
        return _dequantized("dequantize_fp16", weight, qscale, groups, torch.float16)

    def dequantize_fp32(self, weight: torch.Tensor, qscale: torch.Tensor, groups: int) -> torch.Tensor:
        """Return what :meth:`dequantize_fp16` does, in float32."""
        return _dequantized("dequantize_fp32", weight, qscale, groups, torch.float32)

    def dequantize_bf16(self, weight: torch.Tensor, qscale: torch.Tensor, groups: int) -> torch.Tensor:
        """Return what :meth:`dequantize_fp16` does, in bfloat16."""
        return _dequantized("dequantize_bf16", weight, qscale, groups, torch.bfloat16)


def _product(
    function: str, x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor | None, q_int8: bool, transposed: bool
) -> torch.Tensor:
    require_floats(function, (3,), x=x)
    if q_int8 and scale is not None:
        weight = _dequantized(function, weight, scale, scale.numel(), x.dtype)
    require_floats(function, (2,), weight=weight)
    by_rows = weight if q_int8 or transposed else weight.t()
    require_like(function, (by_rows.shape[0], x.shape[-1]), x.dtype, weight=by_rows)
    with without_autocast(x):
        return torch.nn.functional.linear(x, by_rows)


def _dequantized(
    function: str, weight: torch.Tensor, scale: torch.Tensor, groups: int, dtype: torch.dtype
) -> torch.Tensor:
    require_like(function, tuple(weight.shape), torch.int8, weight=weight)
    scales = scale.reshape(-1)
    require_like(function, tuple(scales.shape), torch.float32, scale=scales)
    if weight.dim() != 2 or groups < 1 or scales.shape[0] < groups or weight.numel() % groups:
        msg = (
            f"{function} failed: got a weight of shape {tuple(weight.shape)}, {scales.shape[0]} scales and {groups} groups; "
            f"expected two dimensions, equal groups and one scale per group. "
            f"Fix: pass the weight, scales and groups of one quantization."
        )
        raise ValueError(msg)
    values = weight.reshape(groups, -1).float() * scales[:groups, None]
    return values.view(weight.shape).to(dtype)
