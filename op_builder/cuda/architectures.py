"""Chooses the GPU architectures for third parties' CUDA sources."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..engine import environment
from ..engine.errors import OpError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["architecture_flags", "named_architectures"]

_DEFAULT = ("8.0", "9.0", "10.0", "12.0+PTX")
_NAMED = {
    "Volta": "7.0+PTX", "Turing": "7.5+PTX", "Ampere": "8.0;8.6+PTX", "Ada": "8.9+PTX", "Hopper": "9.0+PTX",
    "Blackwell": "10.0;10.3;12.0;12.1+PTX",
}  # fmt: skip
_ARCHITECTURE = re.compile(r"(\d+)\.(\d)([af]?)(\+PTX)?")


def named_architectures() -> list[str]:
    """Return the architectures to build for, in torch's notation (``9.0``, ``12.0+PTX``).

    ``TORCH_CUDA_ARCH_LIST`` decides if it is set, and is never changed. Otherwise the GPU of this machine decides; without a GPU,
    the list has four generations.

    Raises:
        OpError: when ``TORCH_CUDA_ARCH_LIST`` has an invalid entry.
    """
    requested = environment.cuda_arch_list()
    if requested is None:
        return [_present()] if _present() else list(_DEFAULT)
    text = requested
    for name, numbers in _NAMED.items():
        text = re.sub(rf"\b{name}\b(\+PTX)?", numbers, text)
    words = [word for word in re.split(r"[;\s]+", text) if word]
    wrong = [word for word in words if _ARCHITECTURE.fullmatch(word) is None]
    if wrong or not words:
        msg = (
            f"reading TORCH_CUDA_ARCH_LIST failed: got {requested!r}; expected numbers such as '8.0;9.0+PTX', or names from "
            f"{', '.join(_NAMED)}. Fix: unset it, or write '9.0' for an H100."
        )
        raise OpError(msg)
    return list(dict.fromkeys(words))


def architecture_flags(kept: Callable[[list[str]], Sequence[Sequence[str]]]) -> list[str]:
    """Return nvcc's flags for the architectures to build for.

    Args:
        kept: selects from a list the architectures that a builder builds for, each split at its point.

    Raises:
        OpError: when it selects none, or returns something else.
    """
    flags = []
    named = named_architectures()
    for parts in kept(named):
        match = _ARCHITECTURE.fullmatch(".".join(parts))
        if match is None:
            msg = (
                f"choosing architectures failed: got {parts!r} from filter_ccs; expected two parts, such as ['9', '0']. "
                f"Fix: return such lists from filter_ccs."
            )
            raise OpError(msg)
        number = f"{match[1]}{match[2]}{match[3]}"
        flags.append(f"-gencode=arch=compute_{number},code=sm_{number}")
        if match[4]:
            flags.append(f"-gencode=arch=compute_{number},code=compute_{number}")
    if not flags:
        msg = (
            f"choosing architectures failed: filter_ccs kept none of {', '.join(named)}. "
            f"Fix: set TORCH_CUDA_ARCH_LIST to an architecture that the op supports."
        )
        raise OpError(msg)
    return flags


def _present() -> str:
    from ...accelerator import get_accelerator

    accelerator = get_accelerator()
    if accelerator.device_name() != "cuda" or not accelerator.is_available():
        return ""
    major, minor = accelerator.get_device_capability()
    return f"{major}.{minor}"
