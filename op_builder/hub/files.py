"""The Python files of a variant: the op's functions and layers as they are here, and the module that imports them."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..op import Op

__all__ = ["copied_files", "function_names", "made_files"]

_ROOT = Path(__file__).resolve().parents[2]
_LAYERS = "integrations/hf_kernels/layers"


def _folder(package: str) -> Path:
    """Return a package's folder: in a checkout, some are next to ``anyaccel``, not in it."""
    return next(found for root in (_ROOT, _ROOT / "anyaccel") if (found := root / package).is_dir())


def copied_files(op: Op, backend: str = "cpu") -> dict[str, str]:
    """Return the files that a variant for a backend has unchanged, by their path in it."""
    functions = _folder("kernels") / "functions"
    found = {f"functions/{name}.py": functions / f"{name}.py" for name in _with_imports(functions, _module(op))}
    found["functions/__init__.py"] = functions / "__init__.py"
    found["_library.py"] = _folder("kernels") / "hub" / "library.py"
    if backend != "cpu":
        found["_gpu.py"] = _folder("kernels") / "hub" / "gpu.py"
    layers = _folder(_LAYERS) / f"{op.name}.py"
    if layers.is_file():
        found[f"layers/{op.name}.py"] = layers
    return {name: path.read_text(encoding="utf-8") for name, path in found.items()}


def made_files(op: Op) -> dict[str, str]:
    """Return the files that are written for an op, by their path in its variants."""
    names = function_names(op)
    layers = _layers(op)
    classes = "from . import layers\n" if layers else ""
    listed = ", ".join(f'"{name}"' for name in sorted([*names, *(["layers"] if layers else [])]))
    assigned = "\n".join(f"{name} = functions.{name}" for name in names)
    made = {
        "__init__.py": f'"""{op.about}, built by anyaccel."""\n\n{classes}from ._op import functions\n\n'
        f"__all__ = [{listed}]\n\n{assigned}\n",
        "_op.py": f'"""The functions of the op; its library is loaded once per process, as torch requires."""\n\n'
        f"from pathlib import Path\n\nfrom ._library import load\n"
        f"from .functions.{_module(op)} import {_class(op)}\n\n"
        f"functions = {_class(op)}(load(Path(__file__).parent))\n",
    }
    if layers:
        made["layers/__init__.py"] = (
            f'"""The layers, for ``kernelize``."""\n\nfrom .{op.name} import {", ".join(layers)}\n\n'
            f"__all__ = [{', '.join(repr(name) for name in layers)}]\n"
        )
        made["layers/functions.py"] = (
            '"""The functions that the layers call."""\n\nfrom .._op import functions\n\n'
            + "\n".join(f"{name} = functions.{name}" for name in names)
            + "\n"
        )
    return made


def function_names(op: Op) -> list[str]:
    """Return the names of an op's functions, in alphabetical order."""
    functions = op.functions_class()
    return [name for name in sorted(dir(functions)) if name[0] != "_" and callable(getattr(functions, name))]


def _layers(op: Op) -> list[str]:
    source = copied_files(op).get(f"layers/{op.name}.py", "")
    return [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]


def _module(op: Op) -> str:
    return op.functions.partition(":")[0]


def _class(op: Op) -> str:
    return op.functions.partition(":")[2]


def _with_imports(folder: Path, module: str) -> list[str]:
    """Return the names of a module, and of all that it imports from its own folder."""
    found: list[str] = []
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.append(name)
            tree = ast.parse((folder / f"{name}.py").read_text(encoding="utf-8"))
            imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 1)
            waiting += [node.module for node in imports if node.module]
    return sorted(found)
