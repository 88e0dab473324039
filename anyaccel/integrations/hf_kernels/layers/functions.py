"""The functions that the layers call: anyaccel's. ``anyaccel build --hub`` replaces this file by one with a kernel's own."""

from __future__ import annotations

from anyaccel.ops import geglu, layer_norm, rms_norm, swiglu

__all__ = ["geglu", "layer_norm", "rms_norm", "swiglu"]
