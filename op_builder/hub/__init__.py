"""Kernels that Hugging Face's ``kernels`` loads from the Hub or from a folder, without anyaccel.

A folder has one kernel, with a variant for each backend: the op's library, its functions from ``kernels/functions``, its layers,
and ``metadata.json`` with a digest of every file. Each library registers its torch ops in a namespace of its own, so a process
may load it, other versions of it, and anyaccel.
"""

from __future__ import annotations

from .variants import Variant, variants_of
from .writing import write_variant

__all__ = ["Variant", "variants_of", "write_variant"]
