"""deepspeed 0.19.8's quantizer modules, with its function names and arguments, on this project's kernels."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from ...kernels.functions.quantization import QuantizationFunctions

__all__ = ["QuantizerModule"]


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
        """Return the integers and the parameters of each group, as :func:`anyaccel.ops.quantize` does.

        For some group sizes, deepspeed's CUDA kernel includes a 0 in an asymmetric group's range; this one never does.

        Args:
            input_vals: float32, bfloat16 or float16, any shape.
            groups: the number of groups.
            num_bits: 8 or 4.
            quant_type: ``Symmetric`` or ``Asymmetric``.

        Raises:
            ValueError: when the type is neither.
            RuntimeError: when a shape or dtype does not fit.
        """
        symmetric = _is_symmetric("quantize", quant_type)
        return list(self._op.quantize(input_vals, groups, num_bits, symmetric=symmetric))

    def dequantize(
        self, quantized_data: torch.Tensor, params: torch.Tensor, groups: int, num_bits: int, quant_type: int
    ) -> torch.Tensor:
        """Return the values in float16.

        Args:
            quantized_data: the integers that :meth:`quantize` returned.
            params: float32, the parameters of all groups, in any shape, such as that of the buffers that ranks gather into.
            groups: the number of groups.
            num_bits: 8 or 4.
            quant_type: ``Symmetric`` or ``Asymmetric``.

        Raises:
            ValueError: when the parameters do not fit the groups.
        """
        params = _by_group("dequantize", params, groups, quant_type)
        return self._op.dequantize(quantized_data, params, num_bits, dtype=torch.float16)

    def dequantize_fp32(
        self, quantized_data: torch.Tensor, params: torch.Tensor, groups: int, num_bits: int, quant_type: int
    ) -> torch.Tensor:
        """Return the values in float32; see :meth:`dequantize`."""
        params = _by_group("dequantize_fp32", params, groups, quant_type)
        return self._op.dequantize(quantized_data, params, num_bits, dtype=torch.float32)

    def swizzle_quant(
        self, input_vals: torch.Tensor, groups: int, num_bits: int, quant_type: int, pipeline_size: int, nodes: int,
        devices_per_node: int,
    ) -> list[torch.Tensor]:  # fmt: skip
        """Quantize, with the groups in the order of the first all-to-all (inside a node) of ZeRO++'s reduction.

        Args:
            input_vals: float32, bfloat16 or float16, any shape: one partition per rank, in rank order.
            groups: the number of groups of all partitions, which have equal shares.
            num_bits: 8 or 4.
            quant_type: ``Symmetric`` or ``Asymmetric``.
            pipeline_size: the number of parts in which each partition is sent.
            nodes: the number of nodes.
            devices_per_node: the number of ranks on each node.

        Returns:
            The codes, one-dimensional int8, and the parameters of each group; ordered by part, then device, then node.

        Raises:
            ValueError: when the groups cannot be split evenly among the parts of the partitions.
        """
        parts = nodes * devices_per_node * pipeline_size
        if parts < 1 or groups < 1 or groups % parts != 0:
            msg = (
                f"swizzle_quant failed: got {groups} groups for {nodes} nodes of {devices_per_node} devices and {pipeline_size} "
                f"parts; expected a multiple of {max(parts, 1)}. Fix: pass groups={max(parts, 1)}, or a multiple."
            )
            raise ValueError(msg)
        given = self.quantize(input_vals.flatten(), groups, num_bits, quant_type)
        order = (nodes, devices_per_node, pipeline_size, groups // parts)
        codes, params = (one.view(*order, one.numel() // groups).permute(2, 1, 0, 3, 4).flatten(0, 3) for one in given)
        return [codes.flatten(), params.contiguous()]

    def quantized_reduction(
        self, input_vals: torch.Tensor, input_scales: torch.Tensor, in_groups: int, out_groups: int, num_bits: int,
        quant_type: int, devices_per_node: int,
    ) -> list[torch.Tensor]:  # fmt: skip
        """Return the sum of the data from the devices of a node, quantized again: codes and parameters.

        The sum is computed in float32; deepspeed's kernel rounds each partial sum to float16.

        Args:
            input_vals: int8, any shape: the codes of the devices, one after another.
            input_scales: the parameters of ``in_groups`` groups, float32, with the elements that :meth:`quantize` returned.
            in_groups: the number of groups of all devices together.
            out_groups: the number of groups of the sum.
            num_bits: 8 or 4.
            quant_type: ``Symmetric`` or ``Asymmetric``.
            devices_per_node: the number of devices.

        Raises:
            ValueError: when the sizes are not multiples of the number of devices.
        """
        input_scales = _by_group("quantized_reduction", input_scales, in_groups, quant_type)
        last = input_vals.shape[-1] if input_vals.dim() else 0
        if devices_per_node < 1 or last % devices_per_node != 0 or in_groups % devices_per_node != 0:
            msg = (
                f"quantized_reduction failed: got codes of shape {tuple(input_vals.shape)} in {in_groups} groups; expected both "
                f"the last size and the groups to be multiples of {devices_per_node} devices. Fix: pad the tensor "
                f"with torch.nn.functional.pad before quantizing it."
            )
            raise ValueError(msg)
        values = self._op.dequantize(input_vals, input_scales, num_bits, dtype=torch.float32)
        total = values.view(devices_per_node, values.numel() // devices_per_node).sum(0)
        codes, params = self.quantize(total, out_groups, num_bits, quant_type)
        return [codes.view(*input_vals.shape[:-1], last // devices_per_node), params]

    def dequantize_int4_to_half_experimental(
        self, data_in: torch.Tensor, scale_buffer: torch.Tensor, min_val_buffer: torch.Tensor, num_group: int,
        group_size: int,
    ) -> torch.Tensor:  # fmt: skip
        """Return ``code / scale + minimum``.

        Args:
            data_in: uint8, two codes of 4 bits per byte, the one in the high half first.
            scale_buffer: float16, ``num_group`` numbers.
            min_val_buffer: like ``scale_buffer``.
            num_group: the number of groups.
            group_size: the number of elements in a group.

        Returns:
            float16 ``(num_group, group_size)``.

        Raises:
            ValueError: when a size or dtype does not fit.
        """
        return _from_minimum(4, data_in, scale_buffer, min_val_buffer, num_group, group_size)

    def dequantize_int8_to_half_experimental(
        self, data_in: torch.Tensor, scale_buffer: torch.Tensor, min_val_buffer: torch.Tensor, num_group: int,
        group_size: int,
    ) -> torch.Tensor:  # fmt: skip
        """Return what :meth:`dequantize_int4_to_half_experimental` does, with one code of 8 bits per byte."""
        return _from_minimum(8, data_in, scale_buffer, min_val_buffer, num_group, group_size)


def _from_minimum(
    bits: int, data: torch.Tensor, scales: torch.Tensor, minima: torch.Tensor, num_group: int, group_size: int
) -> torch.Tensor:
    """Return the values of unsigned codes, rounding each step to float16."""
    is_right = (
        data.dtype == torch.uint8
        and data.numel() * 8 == num_group * group_size * bits
        and all(given.dtype == torch.float16 and given.numel() == num_group for given in (scales, minima))
    )
    if not is_right:
        msg = (
            f"dequantize_int{bits}_to_half_experimental failed: got {data.numel()} elements of {data.dtype}, {scales.numel()} "
            f"scales of {scales.dtype} and {minima.numel()} minima of {minima.dtype}; expected {num_group} x {group_size} codes "
            f"of {bits} bits in uint8, and {num_group} scales and minima of float16. Fix: pass the "
            f"tensors as they were saved, with their num_group and group_size."
        )
        raise ValueError(msg)
    codes = data if bits == 8 else torch.stack((data >> 4, data & 15), -1)
    return codes.view(num_group, group_size).half() / scales.view(-1, 1) + minima.view(-1, 1)


def _is_symmetric(function: str, quant_type: int) -> bool:
    if quant_type not in tuple(_QuantizationType):
        msg = (
            f"{function} failed: got quant_type={quant_type!r}; expected one of QuantizationType. "
            f"Fix: pass Symmetric or Asymmetric of this module."
        )
        raise ValueError(msg)
    return quant_type == _QuantizationType.Symmetric


def _by_group(function: str, params: torch.Tensor, groups: int, quant_type: int) -> torch.Tensor:
    """Return the parameters with one row per group: a scale, and for asymmetric groups an offset."""
    columns = 1 if _is_symmetric(function, quant_type) else 2
    if groups < 1 or params.numel() != groups * columns or params.layout is not torch.strided:
        msg = (
            f"{function} failed: got params of shape {tuple(params.shape)} for {groups} groups; expected {columns} per group. "
            f"Fix: pass the params that quantize returned, and its number of groups."
        )
        raise ValueError(msg)
    return params.reshape(groups, columns)
