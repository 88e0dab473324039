"""``AsyncIOBuilder``: reads and writes in the background, by ``csrc/async_io``, which does not use torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import loading
from ..host_library import HostLibrary

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["AsyncIOBuilder"]


class AsyncIOBuilder(HostLibrary):
    """Builds the library; it needs no system package."""

    NAME = "async_io"
    BUILD_VAR = "DS_BUILD_AIO"
    SOURCES = tuple(f"async_io/{name}.cpp" for name in ("async_io", "handle", "io_uring", "kernel_aio", "worker"))

    def _load_library(self, binary: Path) -> Any:
        from ..deepspeed.async_files import AsyncIOModule

        return AsyncIOModule(loading.load_c_library(self.NAME, binary))
