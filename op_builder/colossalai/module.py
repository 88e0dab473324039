"""What a loader of Colossal-AI's returns: its functions, and the op's own beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...kernels.functions.registration import OpFunctions

__all__ = ["ColossalAIModule"]


class ColossalAIModule:
    """Functions by Colossal-AI's names; every other name is that of the op's functions.

    Args:
        functions: of the op.
    """

    def __init__(self, functions: OpFunctions) -> None:
        self._functions = functions

    def __getattr__(self, name: str) -> Any:
        if name == "_functions":  # of an object that is being copied
            raise AttributeError(name)
        return getattr(self._functions, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._functions)})
