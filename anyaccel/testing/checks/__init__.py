"""What the contract asks of each member, as functions that raise where an accelerator does otherwise.

Each module holds the checks of one part of the contract and lists them in its ``CHECKS``, by member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import behaviour, devices, launching, memory, pinning, random_numbers, streams, tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...accelerator import DeepSpeedAccelerator

__all__ = ["CHECKS"]

CHECKS: dict[str, Callable[[DeepSpeedAccelerator], None]] = {
    **behaviour.CHECKS,
    **devices.CHECKS,
    **random_numbers.CHECKS,
    **streams.CHECKS,
    **memory.CHECKS,
    **tensors.CHECKS,
    **pinning.CHECKS,
    **launching.CHECKS,
}
