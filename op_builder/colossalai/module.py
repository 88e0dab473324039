"""The base class of Colossal-AI's modules: its functions together with the op's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...kernels.functions.registration import OpFunctions

__all__ = ["ColossalAIModule"]


class ColossalAIModule:
    """Functions with Colossal-AI's names; all other names are looked up in the op's functions.

    Args:
        functions: the op's functions.
    """

    def __init__(self, functions: OpFunctions) -> None:
        self._functions = functions

    def __getattr__(self, name: str) -> Any:
        if name == "_functions":  # the object is being copied
            raise AttributeError(name)
        return getattr(self._functions, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._functions)})
