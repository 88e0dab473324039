"""The toy device through ``torch.toy``."""

from __future__ import annotations

from .torch_accelerator import TorchAccelerator

__all__ = ["ToyAccelerator"]


class ToyAccelerator(TorchAccelerator):
    """The host's memory under another name."""

    def __init__(self) -> None:
        super().__init__("toy")

    def is_synchronized_device(self) -> bool:
        return True
