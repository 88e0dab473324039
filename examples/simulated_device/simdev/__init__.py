"""Two simulated devices named ``simdev`` for PyTorch, in C++: importing this package builds them once and registers them."""

from __future__ import annotations

from anyaccel import TorchAccelerator

from .builder import SimdevBuilder

__all__ = ["SimdevAccelerator", "SimdevBuilder"]

SimdevBuilder().load()


class SimdevAccelerator(TorchAccelerator):
    """The simulated devices of this process."""

    def __init__(self) -> None:
        super().__init__("simdev")
