"""The kernel loaders by name, such as ``RMSNormLoader``: one or more per op in the table, and Colossal-AI's own."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .choosing import KernelLoader
from .implementations import implementations_of
from .table import OPS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["KernelLoader", "loader_class", "loader_names"]

_OF_OPS = {name: (op, about) for op in OPS for name, about in op.loaders.items()}


class OpLoader(KernelLoader):
    """Loads an op of the table; its functions also have Colossal-AI's names if Colossal-AI has a loader of this name."""

    def load(self, ext_name: str | None = None) -> Any:
        """Load an implementation; see :meth:`functions`.

        Args:
            ext_name: its name; by default the highest-priority implementation that works here.
        """
        from .colossalai.surface import with_colossalais_names

        return with_colossalais_names(type(self).__name__, self.functions(ext_name))


def loader_names() -> list[str]:
    """Return the names of all loaders, in the order of the report."""
    return [*_OF_OPS, *_others()]


def _others() -> dict[str, tuple[str, Callable[[], list[Any]]]]:
    from .colossalai.loaders import COLOSSALAI_LOADERS  # not needed by any function of anyaccel.ops

    return COLOSSALAI_LOADERS


@functools.cache
def loader_class(name: str) -> type[KernelLoader]:
    """Return a loader's class by its name.

    Raises:
        KeyError: when no loader has that name.
    """
    if name in _OF_OPS:
        op, about = _OF_OPS[name]
        implementations: list[Any] = implementations_of(op)
    else:
        about, extensions = _others()[name]
        implementations = extensions()
    base = OpLoader if name in _OF_OPS else KernelLoader
    made: type[KernelLoader] = type(name, (base,), {"__doc__": f"{about}.", "__module__": __name__})
    made.REGISTRY = implementations
    return made


def __getattr__(name: str) -> Any:
    """Return a loader's class by its name, or ``LOADERS``, all of them."""
    if name == "LOADERS":
        return tuple(map(loader_class, loader_names()))
    if name in _OF_OPS or name in _others():
        return loader_class(name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
