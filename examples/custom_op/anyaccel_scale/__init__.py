"""An op of a third party."""

from .builders import CUDAScaleBuilder, ScaleBuilder

__all__ = ["CUDAScaleBuilder", "ScaleBuilder"]
