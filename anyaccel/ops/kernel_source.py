"""``KernelSource``: the source that a kernel of your own is compiled from, for any device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..op_builder.engine import environment
from ..op_builder.engine.build import ensure_built
from ..op_builder.engine.cache import open_cache

if TYPE_CHECKING:
    from pathlib import Path

    from ..op_builder.engine.device_code import DeviceCodeRecipe
    from ..op_builder.engine.entry import Entry

__all__ = ["KernelSource"]


@dataclass(frozen=True)
class KernelSource:
    """The source text of a kernel, and the options it is compiled with.

    Args:
        text: CUDA C++, PTX, or SYCL.
        name: the kernel's name in it.
        suffix: of a file with this text, such as ``.cu``.
        options: more options for the compiler.
        include_dirs: where the headers are that the text includes, as absolute paths.
    """

    text: str
    name: str
    suffix: str
    options: tuple[str, ...]
    include_dirs: tuple[Path, ...]

    def file(self) -> Path:
        """Return a file with the text; the same text is always in the same file."""
        return open_cache(environment.cache_dir()).keep_source(self.text, self.suffix)

    def build(self, recipe: DeviceCodeRecipe) -> Entry:
        """Return the recipe's result from the cache, or build it.

        Raises:
            BuildError: if the compiler refuses the source.
        """
        return ensure_built(recipe, open_cache(environment.cache_dir()), environment.build_jobs())
