"""Two simulated devices named ``simdev`` for PyTorch, in C++: importing this package builds them once and registers them."""

from __future__ import annotations

from .builder import SimdevBuilder

__all__ = ["SimdevBuilder"]

SimdevBuilder().load()
