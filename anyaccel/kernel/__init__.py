"""Colossal-AI's import paths: ``colossalai.kernel`` becomes ``anyaccel.kernel``, and the rest of a program stays the same.

>>> from anyaccel.kernel.kernel_loader import CPUAdamLoader
>>> from anyaccel.kernel.base_extension import _Extension
"""

from __future__ import annotations
