"""Runs functions right after given modules are imported for the first time."""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    Then = Callable[[ModuleType], None]

__all__ = ["after_import"]


def after_import(functions: dict[str, Then]) -> None:
    """Call a function with each module right after its code has run, before the importing code continues.

    Args:
        functions: the functions, by the full name of the module.
    """
    sys.meta_path.insert(0, _Finder(functions))


class _Finder(MetaPathFinder):
    def __init__(self, functions: dict[str, Then]) -> None:
        self._functions = functions

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._functions:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._functions[fullname])
        return spec


class _Loader(Loader):
    def __init__(self, loader: Loader, then: Then) -> None:
        self._loader = loader
        self._then = then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:  # from now on, requests for the source reach the loader that has it
            module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then(module)
