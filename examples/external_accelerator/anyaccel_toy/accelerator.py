"""The accelerator: ``TorchAccelerator`` calls ``torch.toy`` for nearly everything; this class has only the differences."""

from __future__ import annotations

from anyaccel import CPU_Accelerator, TorchAccelerator

__all__ = ["ToyAccelerator"]


class ToyAccelerator(TorchAccelerator):
    """The toy devices of this process."""

    # The device reads host memory directly, like the CPU: there is nothing to pin.
    _torch_pin_memory = CPU_Accelerator._torch_pin_memory
    _torch_empty_pinned = CPU_Accelerator._torch_empty_pinned
    _torch_is_pinned = CPU_Accelerator._torch_is_pinned

    def __init__(self) -> None:
        super().__init__("toy")

    def is_synchronized_device(self) -> bool:
        return True

    def communication_backend_name(self) -> str:
        return "gloo"
