"""deepspeed 0.19.8's module for floats of 4, 6, 8 and 12 bits: its function names, arguments and format, by torch operators.

The row of a group has its codes one after another, the first in the lowest bits, then its scale in 4 bytes. A code is a sign, an
exponent and a mantissa with a leading 1; deepspeed has no subnormal numbers and no infinity.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ...kernels.functions.outputs import require_writable, write_output
from ..arguments import require_floats, require_integers

__all__ = ["FPQuantizerModule", "largest"]

_MANTISSA = 23
"""The mantissa bits of a float32; its exponent has a bias of 127."""


class _Format(NamedTuple):
    exponent: int
    mantissa: int
    largest: float

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    def row(self, group_size: int) -> int:
        """Return the size of a group in bytes."""
        return group_size * self.bits // 8 + 4


_FORMATS = {
    (8, 3): _Format(4, 3, 480.0),
    (8, 2): _Format(5, 2, 114688.0),
    (12, 7): _Format(4, 7, 510.0),
    (12, 4): _Format(4, 7, 510.0),  # deepspeed's Python requests this format, and its kernel implements it
    (6, 2): _Format(3, 2, 28.0),
    (4, 1): _Format(2, 1, 6.0),
}


_DEFAULT_MANTISSA = {4: 1, 6: 2, 8: 3, 12: 7}


def largest(bits: int) -> float:
    """Return the largest number of the usual format of so many bits.

    Raises:
        NotImplementedError: when there is none.
    """
    return _format(bits, _DEFAULT_MANTISSA.get(bits, 0)).largest


class FPQuantizerModule:
    """The module ``fp_quantizer``.

    Its codes equal deepspeed's bit for bit, except for zero: deepspeed's kernel writes the bits of another number for it, and
    with 12 bits also into its neighbour. Here zero has the code 0, which deepspeed's kernel never writes, and reads as zero.
    Stochastic rounding is unbiased for numbers from the format's smallest on; smaller ones become that one. deepspeed's adds
    about ten to the dropped bits, which has almost no effect.
    """

    CUDA_IMPL = True

    def quantize(
        self, out: torch.Tensor, val: torch.Tensor, group_size: int, stochastic_rounding: bool, q_bits: int,
        q_mantisa_bits: int,
    ) -> torch.Tensor:  # fmt: skip
        """Write codes and scales.

        Args:
            out: uint8 ``(groups, group_size * q_bits / 8 + 4)``, written.
            val: bfloat16, float16 or float32; its elements are split into groups.
            group_size: a multiple of 8.
            stochastic_rounding: round to either neighbour, the nearer the more probable; otherwise to the nearest.
            q_bits: 4, 6, 8 or 12.
            q_mantisa_bits: 1 for 4 bits, 2 for 6, 3 or 2 for 8, and 4 for 12.

        Returns:
            ``out``.

        Raises:
            NotImplementedError: when the format does not exist.
            ValueError: when a shape or a dtype does not fit.
            RuntimeError: when elements of the output share memory.
        """
        form = _format(q_bits, q_mantisa_bits)
        require_floats("quantize", tuple(range(9)), val=val)
        groups = _require_rows("quantize", out, form, group_size, val.numel())
        require_writable("quantize", out, val)
        if groups == 0:
            return out
        given = val.reshape(groups, group_size)
        largest = given.abs().amax(1, keepdim=True).float()
        largest = torch.where(largest.isinf(), torch.nan, largest)
        smallest = form.largest * torch.finfo(torch.float32).tiny  # of a smaller one, the factor would be infinite
        largest = torch.where(largest > 0, largest.clamp_min(smallest), largest)
        limit = torch.full_like(largest, form.largest)  # torch computes number / tensor as number * reciprocal
        factor = torch.where(largest == 0, 0, limit / largest)
        codes = _codes(given.float() * factor, form, stochastic_rounding)
        out[:, :-4] = _packed(codes, form.bits)
        out[:, -4:] = (largest / limit).view(torch.uint8)
        return out

    def dequantize(
        self, val: torch.Tensor, val_q: torch.Tensor, group_size: int, q_mantisa_bits: int, q_exponent_bits: int
    ) -> None:
        """Write the values of codes.

        Args:
            val: bfloat16, float16 or float32, with as many elements as were quantized; written.
            val_q: uint8, one row per group: the codes and the scale that :meth:`quantize` wrote.
            group_size: the one that was quantized with.
            q_mantisa_bits: the mantissa bits of a code.
            q_exponent_bits: the exponent bits of a code; with the sign and the mantissa they are 4, 6, 8 or 12 bits.

        Raises:
            NotImplementedError: when the format does not exist.
            ValueError: when a shape or a dtype does not fit.
            RuntimeError: when elements of the output share memory.
        """
        form = _format(1 + q_mantisa_bits + q_exponent_bits, q_mantisa_bits)
        require_floats("dequantize", tuple(range(9)), val=val)
        _require_rows("dequantize", val_q, form, group_size, val.numel())
        codes = _unpacked(val_q[:, :-4], form.bits)
        scales = self.get_scales(val_q, len(val_q))
        write_output("dequantize", val, (_values(codes, form) * scales).to(val.dtype).view(val.shape))

    def get_scales(self, out: torch.Tensor, num_groups: int) -> torch.Tensor:
        """Return the scales in the last 4 bytes of each row.

        Args:
            out: uint8, one row per group: the codes and the scale that :meth:`quantize` wrote.
            num_groups: how many groups to read, from the first on.

        Returns:
            float32 ``(num_groups, 1)``.

        Raises:
            ValueError: when a shape or a dtype does not fit.
        """
        if out.dtype != torch.uint8 or out.dim() != 2 or out.shape[1] < 4 or not 0 <= num_groups <= out.shape[0]:
            msg = (
                f"get_scales failed: got {out.dtype} of shape {tuple(out.shape)} for {num_groups} groups; expected "
                f"torch.uint8, one row per group. Fix: pass the codes that quantize returned."
            )
            raise ValueError(msg)
        return out[:num_groups, -4:].clone(memory_format=torch.contiguous_format).view(torch.float32)

    def selective_dequantize(
        self, val: torch.Tensor, val_q: torch.Tensor, indexes: torch.Tensor, group_size: int, q_mantisa_bits: int,
        q_exponent_bits: int,
    ) -> None:  # fmt: skip
        """Write the values of a selection along the first dimension of quantized data; see :meth:`dequantize`.

        Args:
            val: ``(indexes, ...)``, written.
            val_q: all codes and scales, like :meth:`dequantize`'s.
            indexes: int32 or int64 ``(indexes,)``.
            group_size: as in :meth:`quantize`.
            q_mantisa_bits: as in :meth:`quantize`.
            q_exponent_bits: the exponent bits of the format.

        Raises:
            IndexError: when an index is out of range.
        """
        require_integers("selective_dequantize", (1,), indexes=indexes)
        form, count = _format(1 + q_mantisa_bits + q_exponent_bits, q_mantisa_bits), indexes.shape[0]
        if count == 0:
            return
        parts = val.shape[0] if val.dim() else 0
        groups = val.numel() // count // max(group_size, 1) if parts == count else 0
        width = groups * form.row(group_size)
        if width == 0 or val_q.numel() % width or int(indexes.min()) < 0 or int(indexes.max()) * width >= val_q.numel():
            msg = (
                f"selective_dequantize failed: got parts {indexes.tolist()[:8]} of {groups} groups each, and {val_q.numel()} "
                f"bytes; expected parts in this range. Fix: pass all codes, and an output for the selected parts."
            )
            raise IndexError(msg)
        chosen = val_q.reshape(-1, width)[indexes.long()].view(-1, form.row(group_size))
        self.dequantize(val, chosen, group_size, q_mantisa_bits, q_exponent_bits)


def _codes(scaled: torch.Tensor, form: _Format, is_stochastic: bool) -> torch.Tensor:
    """Return the int32 codes of float32 numbers that do not exceed the format's largest."""
    bits, dropped = scaled.view(torch.int32), _MANTISSA - form.mantissa
    sign, rest = (bits >> 31) & 1, bits & 0x7FFFFFFF
    offset = torch.randint_like(rest, 1 << dropped) if is_stochastic else 1 << (dropped - 1)
    rounded = rest.clamp(max=0x7F000000) + offset  # non-finite numbers also exceed the largest
    shift = (127 - form.bias) << form.mantissa
    field = (rounded >> dropped) - shift  # exponent and mantissa
    field = field.clamp(1 << form.mantissa, (1 << (form.bits - 1)) - 1)
    return torch.where(rest >> _MANTISSA == 0, 0, sign << (form.bits - 1) | field)


def _values(codes: torch.Tensor, form: _Format) -> torch.Tensor:
    """Return the float32 values of codes, without the scale."""
    field = codes & ((1 << (form.bits - 1)) - 1)
    bits = (codes >> (form.bits - 1) << 31) | (field + ((127 - form.bias) << form.mantissa)) << (
        _MANTISSA - form.mantissa
    )
    return torch.where(field == 0, 0.0, bits.view(torch.float32))


def _packed(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Return rows of codes as rows of bytes, the first code in the lowest bits."""
    together, size = _together(bits)
    places = torch.arange(together, dtype=torch.int32, device=codes.device) * bits
    words = (codes.view(codes.shape[0], codes.shape[1] // together, together) << places).sum(-1, dtype=torch.int32)
    ends = torch.arange(size, dtype=torch.int32, device=codes.device) * 8
    stored: torch.Tensor = ((words[..., None] >> ends) & 255).flatten(1).to(torch.uint8)
    return stored


def _unpacked(data: torch.Tensor, bits: int) -> torch.Tensor:
    together, size = _together(bits)
    ends = torch.arange(size, dtype=torch.int32, device=data.device) * 8
    words = (data.to(torch.int32).reshape(data.shape[0], data.shape[1] // size, size) << ends).sum(
        -1, dtype=torch.int32
    )
    places = torch.arange(together, dtype=torch.int32, device=data.device) * bits
    codes: torch.Tensor = ((words[..., None] >> places) & ((1 << bits) - 1)).flatten(1)
    return codes


def _together(bits: int) -> tuple[int, int]:
    """Return the smallest number of codes that fills whole bytes, and the number of bytes."""
    return {4: (2, 1), 6: (4, 3), 8: (1, 1), 12: (2, 3)}[bits]


def _format(bits: int, mantissa: int) -> _Format:
    found = _FORMATS.get((bits, mantissa))
    if found is None:
        msg = (
            f"quantizing to floats failed: got {bits} bits with a mantissa of {mantissa}; expected 8 with 3 or 2, 12 with 4, "
            f"6 with 2 or 4 with 1. Fix: pass q_bits=8 and q_mantisa_bits=3, or another of these pairs."
        )
        raise NotImplementedError(msg)
    return found


def _require_rows(function: str, rows: torch.Tensor, form: _Format, group_size: int, elements: int) -> int:
    """Check the tensor of codes, and return the number of groups."""
    groups = elements // group_size if group_size > 0 and group_size % 8 == 0 and elements % group_size == 0 else -1
    if (
        groups < 0
        or rows.dtype != torch.uint8
        or rows.shape != (groups, form.row(group_size))
        or rows.layout is not torch.strided
    ):
        msg = (
            f"{function} failed: got codes of shape {tuple(rows.shape)} and {rows.dtype} for {elements} elements in groups of "
            f"{group_size}; expected torch.uint8, (elements / group size, group size * {form.bits} / 8 + 4), and a group size "
            f"that is a multiple of 8. Fix: pass the codes that quantize returned, and its group size."
        )
        raise ValueError(msg)
    return groups
