"""LibCST's metadata without the walks over the whole tree in which nothing is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from libcst.metadata import MetadataWrapper

if TYPE_CHECKING:
    from collections.abc import Iterable

    import libcst as cst

__all__ = ["Metadata"]


class Metadata(MetadataWrapper):
    """Resolves providers that do all of their work for the module, as those of scopes and of positions do.

    LibCST visits every node for them once more with visitors that have nothing to do there, also where there is no visitor: that
    takes longer than the work.
    """

    def visit_batched(self, visitors: Iterable[Any], *_: Any) -> cst.Module:
        for visitor in visitors:
            with visitor.resolve(self):
                visitor.visit_Module(self.module)
        return self.module
