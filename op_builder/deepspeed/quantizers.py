"""deepspeed 0.19.8's quantizer modules, by their function names and arguments, on this project's kernels."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import torch

from ...kernels.functions.outputs import require_one_place_each, write_output

if TYPE_CHECKING:
    from ...kernels.functions.quantization import QuantizationFunctions

__all__ = ["FPQuantizerModule", "QuantizerModule"]


class _QuantizationType(IntEnum):
    Symmetric = 0
    Asymmetric = 1


class QuantizerModule:
    """The module ``quantizer``: groupwise integers of 8 or 4 bits."""

    QuantizationType = _QuantizationType
    Symmetric = _QuantizationType.Symmetric
    Asymmetric = _QuantizationType.Asymmetric

    def __init__(self, op: QuantizationFunctions) -> None:
        self._op = op

    def quantize(self, input_vals: torch.Tensor, groups: int, num_bits: int, quant_type: int) -> list[torch.Tensor]:
        """Return the integers and the parameters of each group; see :meth:`QuantizationFunctions.quantize`.

        deepspeed's CUDA kernel counts a 0 into an asymmetric group's range for some group sizes; this one never does.
        """
        symmetric = quant_type == _QuantizationType.Symmetric
        return list(self._op.quantize(input_vals, groups, num_bits, symmetric=symmetric))

    def dequantize(
        self, quantized_data: torch.Tensor, params: torch.Tensor, groups: int, num_bits: int, quant_type: int
    ) -> torch.Tensor:
        """Return the values, float16."""
        _check_groups(params, groups)
        return self._op.dequantize(quantized_data, params, num_bits, dtype=torch.float16)

    def dequantize_fp32(
        self, quantized_data: torch.Tensor, params: torch.Tensor, groups: int, num_bits: int, quant_type: int
    ) -> torch.Tensor:
        """Return the values, float32."""
        _check_groups(params, groups)
        return self._op.dequantize(quantized_data, params, num_bits, dtype=torch.float32)


class FPQuantizerModule:
    """The module ``fp_quantizer``, for 8 bits: e4m3 and e5m2.

    Each group's row holds its codes and, in the last 4 bytes, its scale, as deepspeed's does. The codes are those of
    ``torch.float8_e4m3fn`` and ``torch.float8_e5m2``, which have a zero; deepspeed's have none.
    """

    CUDA_IMPL = True

    def __init__(self, op: QuantizationFunctions) -> None:
        self._op = op

    def quantize(
        self, out: torch.Tensor, val: torch.Tensor, group_size: int, stochastic_rounding: bool, q_bits: int,
        q_mantisa_bits: int,
    ) -> torch.Tensor:  # fmt: skip
        """Write codes and scales to ``out``, uint8 ``(groups, group_size + 4)``, and return it."""
        if stochastic_rounding:
            msg = "quantize failed: got stochastic_rounding=True; expected False. Fix: round to nearest."
            raise NotImplementedError(msg)
        dtype = _float8(q_bits, q_mantisa_bits)
        require_one_place_each("quantize", out)
        q, scales = self._op.quantize_float8(val.reshape(-1, group_size), val.numel() // group_size, dtype)
        out[:, :group_size].copy_(q.view(torch.uint8))
        out[:, group_size:].copy_(scales[:, None].view(torch.uint8))
        return out

    def dequantize(
        self, val: torch.Tensor, val_q: torch.Tensor, group_size: int, q_mantisa_bits: int, q_exponent_bits: int
    ) -> None:
        """Write the values of codes to ``val``."""
        dtype = _float8(1 + q_mantisa_bits + q_exponent_bits, q_mantisa_bits)
        scales = val_q[:, group_size:].contiguous().view(torch.float32).flatten()
        codes = val_q[:, :group_size].contiguous().view(dtype)
        write_output("dequantize", val, self._op.dequantize_float8(codes, scales, dtype=val.dtype).view_as(val))

    def get_scales(self, out: torch.Tensor, num_groups: int) -> torch.Tensor:
        """Return the scales in the last 4 bytes of each row, float32 ``(groups, 1)``."""
        if out.dtype != torch.uint8:
            msg = f"get_scales failed: got {out.dtype}; expected torch.uint8. Fix: pass what quantize returned."
            raise ValueError(msg)
        return out[:num_groups, -4:].clone(memory_format=torch.contiguous_format).view(torch.float32)

    def selective_dequantize(
        self, val: torch.Tensor, val_q: torch.Tensor, indexes: torch.Tensor, group_size: int, q_mantisa_bits: int,
        q_exponent_bits: int,
    ) -> None:  # fmt: skip
        """Write the values of some rows of codes, each a row of groups, to ``val``."""
        rows = val_q.view(-1, val.shape[-1] // group_size * (group_size + 4))[indexes.long()]
        self.dequantize(val, rows.view(-1, group_size + 4), group_size, q_mantisa_bits, q_exponent_bits)


def _float8(bits: int, mantissa: int) -> torch.dtype:
    found = {(8, 3): torch.float8_e4m3fn, (8, 2): torch.float8_e5m2}.get((bits, mantissa))
    if found is None:
        msg = (
            f"quantizing to floats failed: got {bits} bits with a mantissa of {mantissa}; expected 8 with 3 or 2. "
            f"Fix: choose one of them."
        )
        raise NotImplementedError(msg)
    return found


def _check_groups(params: torch.Tensor, groups: int) -> None:
    if params.shape[0] != groups:
        msg = f"dequantize failed: got params of {params.shape[0]} groups; expected {groups}. Fix: pass what quantize gave."
        raise ValueError(msg)
