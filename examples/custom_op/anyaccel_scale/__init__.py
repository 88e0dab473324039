"""A third party's op."""

from .builders import CUDAScaleBuilder, ScaleBuilder

__all__ = ["CUDAScaleBuilder", "ScaleBuilder"]
