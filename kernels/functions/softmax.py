"""The functions of the op ``softmax``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .derivative import Derivative
from .registration import OpFunctions, empty_contiguous

if TYPE_CHECKING:
    import torch

__all__ = ["SoftmaxFunctions"]


def _fake(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return empty_contiguous(x)


class SoftmaxFunctions(OpFunctions):
    """Softmax of scaled scores with a mask."""

    OPS: ClassVar = {
        "scaled_masked_softmax": (_fake, Derivative("softmax_backward", ("grad0", "result0", "input2"), (0, -1, -1))),
        "scaled_upper_triang_masked_softmax": (
            _fake,
            Derivative("softmax_backward", ("grad0", "result0", "input1"), (0, -1)),
        ),
        "softmax_backward": (_fake,),
    }

    def scaled_masked_softmax(
        self, x: torch.Tensor, mask: torch.Tensor | None = None, scale: float = 1.0
    ) -> torch.Tensor:
        """See :func:`anyaccel.ops.scaled_masked_softmax`."""
        y: torch.Tensor = self._scaled_masked_softmax(x, mask, scale)
        return y

    def scaled_upper_triang_masked_softmax(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        """See :func:`anyaccel.ops.scaled_upper_triang_masked_softmax`."""
        y: torch.Tensor = self._scaled_upper_triang_masked_softmax(x, scale)
        return y
