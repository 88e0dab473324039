"""deepspeed 0.19.8's module for transformer inference, with its function names and positional arguments.

Functions that need the workspace of deepspeed's CUDA context (the cache, and attention over it) are missing: deepspeed's
Python classes compute them with torch operators if the module does not have them. Functions with a dtype in their name take all
floating dtypes. Results are new tensors; deepspeed's kernels may also change a contiguous argument.
"""

from __future__ import annotations

import torch

from ...kernels.functions.outputs import require_writable
from ..arguments import require_floats, require_like
from .transformer_layouts import TransformerLayouts
from .transformer_norms import biased, require_bias
from .transformer_products import TransformerProducts

__all__ = ["InferenceModule"]


class InferenceModule(TransformerProducts, TransformerLayouts):
    """The module ``transformer_inference``, except for its workspace."""

    def softmax(
        self, attn_scores: torch.Tensor, attn_mask: torch.Tensor | None, alibi: torch.Tensor | None, triangular: bool,
        recompute: bool, local_attention: bool, window_size: int, async_op: bool, layer_scale: float, head_offset: int,
        mp_size: int,
    ) -> torch.Tensor:  # fmt: skip
        """Return the softmax of attention scores over the keys.

        Args:
            attn_scores: ``(batch, heads, queries, keys)``.
            attn_mask: added: ``(batch, keys)``, or ``(batch, heads, queries, keys)``, of which each but the last may be 1; None
                or one dimension for no mask.
            alibi: added to the scores; ``(batch * heads * mp_size, 1, keys)``; None or one dimension for none.
            triangular: query ``i`` sees the keys up to ``i``.
            recompute: ignored.
            local_attention: query ``i`` sees only the last ``window_size`` keys; with a cache, those up to ``i + keys``.
            window_size: see ``local_attention``.
            async_op: ignored.
            layer_scale: the factor for the scores, before mask and alibi.
            head_offset: the first head of this process in ``alibi``.
            mp_size: the number of processes that share the heads.

        Raises:
            ValueError: when a shape or dtype does not fit.
        """
        require_floats("softmax", (4,), attn_scores=attn_scores)
        batch, heads, queries, keys = attn_scores.shape
        scores = attn_scores.float() * layer_scale
        if alibi is not None and alibi.dim() > 1:
            require_floats("softmax", (2, 3, 4), alibi=alibi)
            scores += _alibi(alibi, batch, heads, keys, head_offset, mp_size)
        if attn_mask is not None and attn_mask.dim() > 1:
            require_floats("softmax", (2, 4), attn_mask=attn_mask)
            mask = attn_mask if attn_mask.dim() == 4 else attn_mask[:, None, None, :]
            fits = all(size in (1, whole) for size, whole in zip(mask.shape, scores.shape, strict=True))
            if not fits or mask.shape[3] != keys:
                msg = (
                    f"softmax failed: got attn_mask of shape {tuple(attn_mask.shape)} for scores of shape "
                    f"{tuple(scores.shape)}; expected {(batch, keys)}, or the scores' shape with 1 for any but the last. "
                    f"Fix: pass the mask of the same batch, queries and keys."
                )
                raise ValueError(msg)
            scores += mask
        row, column = torch.arange(queries, device=scores.device)[:, None], torch.arange(keys, device=scores.device)
        if triangular:
            scores.masked_fill_(column > row, float("-inf"))
        if local_attention:
            place = row if queries == keys else row + keys
            scores.masked_fill_((place >= window_size) & (column <= place - window_size), float("-inf"))
        return scores.softmax(-1).to(attn_scores.dtype)

    softmax_fp32 = softmax_fp16 = softmax_bf16 = softmax

    def bias_add(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Return ``x + bias``.

        Args:
            x: ``(..., channels)``.
            bias: ``(channels,)``, of x's dtype.

        Raises:
            ValueError: when a shape or dtype does not fit.
        """
        return biased("bias_add", x, bias)

    bias_add_fp32 = bias_add_fp16 = bias_add_bf16 = bias_add

    def bias_relu(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Return what :meth:`bias_add` does, followed by ReLU; the arguments are the same."""
        return biased("bias_relu", x, bias).relu()

    bias_relu_fp32 = bias_relu_fp16 = bias_relu_bf16 = bias_relu

    def bias_gelu(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Return what :meth:`bias_add` does, followed by GELU (tanh).

        Args:
            x: ``(..., channels)``; float32, bfloat16 or float16.
            bias: ``(channels,)``, of x's dtype.

        Raises:
            RuntimeError: when a shape, dtype or device does not fit.
        """
        return self._activations.bias_gelu(x, bias)

    bias_gelu_fp32 = bias_gelu_fp16 = bias_gelu_bf16 = bias_gelu

    def bias_residual(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        bias: torch.Tensor,
    ) -> torch.Tensor:
        """Return a contiguous ``x``: deepspeed 0.19.8 adds neither ``residual`` nor ``bias`` here.

        Args:
            x: a tensor of any shape and dtype.
            residual: ignored, whatever its shape.
            bias: ignored, whatever its shape.
        """
        return x.contiguous()

    bias_residual_fp32 = bias_residual_fp16 = bias_residual_bf16 = bias_residual

    def gated_activation(self, activation: torch.Tensor, bias: torch.Tensor | None, act_type: int) -> torch.Tensor:
        """Return ``first * act(second)`` for the halves of ``activation + bias``.

        Args:
            activation: ``(..., 2 * channels)``.
            bias: ``(2 * channels,)``, or None.
            act_type: 3 for GELU, 4 for SiLU.

        Raises:
            NotImplementedError: for any other activation.
        """
        if bias is not None:
            activation = biased("gated_activation", activation, bias)
        return self._gated("gated_activation", activation, act_type)

    def residual_add_bias(
        self, hidden_state: torch.Tensor, residual: torch.Tensor, attention_output: torch.Tensor,
        attention_bias: torch.Tensor, final_bias: torch.Tensor, mp_size: int, mlp_after_attn: bool, add_bias: bool,
        preln: bool,
    ) -> torch.Tensor:  # fmt: skip
        """Add a layer's results to its residual, in place.

        Args:
            hidden_state: ``(batch, tokens, channels)``, the output of the MLP.
            residual: the same shape; written.
            attention_output: the same shape; not read after a layer norm (``mlp_after_attn`` without ``preln``).
            attention_bias: ``(channels,)``; read when ``attention_output`` is; with a parallel MLP, if ``add_bias`` is set.
            final_bias: ``(channels,)``.
            mp_size: the number of processes; each contribution is divided by it.
            mlp_after_attn: whether the MLP comes after the attention.
            add_bias: see ``attention_bias``.
            preln: whether a layer norm comes before the layer.

        Returns:
            ``residual``.

        Raises:
            ValueError: when a shape or dtype does not fit.
        """
        name = "residual_add_bias"
        require_floats(name, (3,), residual=residual)
        require_like(name, tuple(residual.shape), residual.dtype, hidden_state=hidden_state)
        require_bias(name, residual, final_bias)
        if mp_size < 1:
            msg = f"{name} failed: got mp_size={mp_size}; expected 1 or more. Fix: pass mp_size=1 for one process."
            raise ValueError(msg)
        res, hidden, bias, share = residual.float(), hidden_state.float(), final_bias.float(), 1 / mp_size
        if mlp_after_attn and not preln:
            return _written(name, residual, res + hidden + bias)
        require_like(name, tuple(residual.shape), residual.dtype, attention_output=attention_output)
        if mlp_after_attn or add_bias:
            require_bias(name, residual, attention_bias)
        if mlp_after_attn:
            total = res + attention_output.float() + bias + attention_bias.float()
            return _written(name, residual, total * share + hidden)
        total = res + attention_bias.float() if add_bias else res
        return _written(name, residual, hidden + attention_output.float() + (total + bias) * share)

    residual_add_bias_fp32 = residual_add_bias_fp16 = residual_add_bias_bf16 = residual_add_bias

    def _vector_add(self, a: torch.Tensor, b: torch.Tensor, gamma: float) -> torch.Tensor:
        """Write ``gamma * a + b`` to ``a``, and return it."""
        require_floats("_vector_add", tuple(range(9)), a=a)
        require_like("_vector_add", tuple(a.shape), a.dtype, b=b)
        return _written("_vector_add", a, a.float() * gamma + b.float())

    def moe_res_matmul(self, moe_res: torch.Tensor, coef: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        """Write ``moe_res * coef[first half] + output * coef[second half]`` to ``output``. Return ``output``.

        Args:
            moe_res: ``(batch, tokens, channels)``.
            coef: ``2 * channels`` elements, of any shape.
            output: like ``moe_res``; written.

        Raises:
            ValueError: when a shape or dtype does not fit.
        """
        require_floats("moe_res_matmul", (3,), moe_res=moe_res)
        require_like("moe_res_matmul", tuple(moe_res.shape), moe_res.dtype, output=output)
        halves = coef.reshape(-1)
        require_like("moe_res_matmul", (2 * moe_res.shape[2],), moe_res.dtype, coef=halves)
        first, second = halves.chunk(2)
        return _written("moe_res_matmul", output, moe_res * first + output * second)


def _alibi(alibi: torch.Tensor, batch: int, heads: int, keys: int, head_offset: int, mp_size: int) -> torch.Tensor:
    rows = alibi.flatten(0, -2)
    first = torch.arange(batch, device="cpu")[:, None] * heads * mp_size + head_offset
    numbers = first + torch.arange(heads, device="cpu")
    is_short = numbers.numel() > 0 and (head_offset < 0 or int(numbers[-1, -1]) >= rows.shape[0])
    if is_short or rows.shape[1] != keys:
        msg = (
            f"softmax failed: got alibi of shape {tuple(alibi.shape)} for {batch} sequences of {heads} heads from head "
            f"{head_offset}, in {mp_size} processes; expected a row of {keys} for each head. Fix: pass alibi of "
            f"({batch * heads * mp_size}, 1, {keys}), and this process's first head as head_offset."
        )
        raise ValueError(msg)
    return rows[numbers.to(rows.device)][:, :, None]


def _written(function: str, given: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    require_writable(function, given, result)
    return given.copy_(result)
