"""The functions of the op ``multi_tensor``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from .registration import OpFunctions, mark_changed, nothing

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MultiTensorFunctions"]


def _norm_fake(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    like = tensors[0]
    return like.new_empty(1, dtype=torch.float32), like.new_empty(len(tensors), dtype=torch.float32)


class MultiTensorFunctions(OpFunctions):
    """Norms, scaling and sums of many tensors in a few launches, without a host synchronisation.

    Tensors are float32, bfloat16 or float16, on one device. A ``noop_flag`` is one int32 on this device, set to 1 when
    an input is not finite.

    """

    OPS: ClassVar = {
        "multi_tensor_l2norm": (_norm_fake,),
        "multi_tensor_scale": (nothing,),
        "multi_tensor_axpby": (nothing,),
    }

    def l2norm(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the norm of all tensors together, float32 ``(1,)``, and of each, float32 ``(tensors,)``.

        Args:
            tensors: any shapes; float32, bfloat16 or float16, all on one device.

        Raises:
            RuntimeError: when the list is empty, or a tensor does not fit the others.

        Source: tests/ops/test_multi_tensor.py
        """
        if not tensors:
            raise RuntimeError("l2norm failed: got no tensors; expected one or more. Fix: leave the call out.")
        total, norms = self._multi_tensor_l2norm(tensors)
        return total, norms

    def scale(
        self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], factor: float | torch.Tensor,
        noop_flag: torch.Tensor | None = None,
    ) -> None:  # fmt: skip
        """Write ``input * factor`` to each output, which may be the input.

        Args:
            inputs: tensors of any shapes; float32, bfloat16 or float16.
            outputs: tensors of the same shapes; dtypes may differ.
            factor: a number, or one float32 on the device.
            noop_flag: see the class.

        Raises:
            RuntimeError: naming the argument, before anything is written.
        """
        on_device = factor if isinstance(factor, torch.Tensor) else None
        self._multi_tensor_scale(
            inputs, outputs, 1.0 if isinstance(factor, torch.Tensor) else factor, on_device, noop_flag
        )
        mark_changed(outputs)

    def axpby(
        self, x: Sequence[torch.Tensor], y: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], a: float, b: float,
        noop_flag: torch.Tensor | None = None,
    ) -> None:  # fmt: skip
        """Write ``a * x + b * y`` to each output, which may be x or y.

        Args:
            x: tensors of any shapes; float32, bfloat16 or float16.
            y: tensors of the same shapes and dtype.
            outputs: tensors of the same shapes and dtype; written.
            a: the factor of x.
            b: the factor of y.
            noop_flag: see the class.

        Raises:
            RuntimeError: naming the argument, before anything is written.
        """
        self._multi_tensor_axpby(x, y, outputs, a, b, noop_flag)
        mark_changed(outputs)
