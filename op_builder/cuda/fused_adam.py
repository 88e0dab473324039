"""``FusedAdamBuilder`` on CUDA: device code that compiles for every architecture; what launches it comes with version 0.2."""

from __future__ import annotations

from typing import Any

from ..built_in import BuiltInOp
from ..engine.errors import OpLoadError
from .builder import CUDAOpBuilder

__all__ = ["FusedAdamBuilder"]


class FusedAdamBuilder(BuiltInOp, CUDAOpBuilder):
    """Compiles ``csrc/adam/adam.cu`` with NVRTC."""

    NAME = "fused_adam"
    CUDA_SOURCE = "adam/adam.cu"

    def require_torch(self) -> None:
        super().require_torch()
        msg = (
            "loading the op 'fused_adam' failed: got a CUDA device; expected the CPU, as its CUDA kernels compile but nothing "
            "launches them before version 0.2. Fix: use torch.optim.AdamW(fused=True) on CUDA until then."
        )
        raise OpLoadError(msg)

    def functions(self) -> Any:
        raise NotImplementedError(self.name)
