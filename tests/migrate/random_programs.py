"""Random programs of several files, some of which use CUDA where a CPU gets to, and a runner that says which of them end well.

``python -m tests.migrate.random_programs FOLDER…`` runs the program ``a.py`` of each folder, and prints a line for each.
"""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import sys
from random import Random

__all__ = ["DIES", "FILES", "random_program"]

DIES = "torch.cuda.get_device_capability()"
"""An expression that raises on a CPU, and that the tool does not rewrite."""
FILES = ("a.py", "b.py", "pkg/__init__.py", "pkg/c.py")
_HEAD = """import argparse
import sys
from contextlib import suppress

import torch
"""
_SETUP = """
HAS = torch.cuda.is_available()
COUNT = torch.cuda.device_count()
KIND = "gpu" if torch.cuda.is_available() else "cpu"


def has_gpu():
    return torch.cuda.is_available()


"""
_TESTS = (
    "torch.cuda.is_available()",
    "not torch.cuda.is_available()",
    "torch.cuda.device_count() > 0",
    "torch.cuda.device_count() == 0",
    "torch.cuda.is_available() and x > 0",
    "HAS",
    "not HAS",
    "COUNT < 1",
    "COUNT",
    "KIND == 'gpu'",
    "KIND != 'gpu'",
    "has_gpu()",
    "not has_gpu()",
)
_OPEN_TESTS = (
    "x > 0 and not torch.cuda.is_available()",
    "torch.cuda.is_available() or x < 0",
    "len(sys.argv) > 50",
    "len(sys.argv) < 50",
    "x > 0",
    "x < 0",
)
"""Tests that are not about CUDA: the tool takes both branches for possible."""


class _Maker:
    """Writes the blocks of one program."""

    def __init__(self, seed: int, *, is_open: bool) -> None:
        self._random = Random(seed)  # noqa: S311
        self._tests = (*_TESTS, *_OPEN_TESTS) if is_open else _TESTS
        self.callable: list[str] = []

    def block(self, depth: int, *, in_function: bool) -> list[str]:
        lines = ["x = 1"]
        for _ in range(self._random.randint(1, 3)):
            lines += self._statement(depth, in_function=in_function)
        return lines

    def _statement(self, depth: int, *, in_function: bool) -> list[str]:
        kinds = ["plain", "call", "dies", "choice", "operand"]
        if depth:
            kinds += ["if", "if", "if", "else", "for", "try", "suppress", "assert"]
        if in_function and depth:
            kinds += ["leave", "leave"]
        return getattr(self, f"_{self._random.choice(kinds)}")(depth, in_function)

    def _test(self) -> str:
        return self._random.choice(self._tests)

    def _inner(self, depth: int, in_function: bool) -> list[str]:
        return [f"    {line}" for line in self.block(depth - 1, in_function=in_function)]

    def _plain(self, *_: object) -> list[str]:
        return [self._random.choice(("y = x + 1", "torch.ones(1).cuda()", "device = 'cuda' if HAS else 'cpu'"))]

    def _call(self, *_: object) -> list[str]:
        return [self._random.choice(self.callable)] if self.callable else ["pass"]

    def _dies(self, *_: object) -> list[str]:
        return [DIES] if self._random.random() < 0.4 else ["pass"]

    def _choice(self, *_: object) -> list[str]:
        one, other = self._random.sample([DIES, "None"], 2)
        return [f"y = {one} if {self._test()} else {other}"]

    def _operand(self, *_: object) -> list[str]:
        return [f"y = {self._test()} {self._random.choice(('and', 'or'))} {DIES}"]

    def _if(self, depth: int, in_function: bool) -> list[str]:
        return [f"if {self._test()}:", *self._inner(depth, in_function)]

    def _else(self, depth: int, in_function: bool) -> list[str]:
        return [*self._if(depth, in_function), "else:", *self._inner(depth, in_function)]

    def _for(self, depth: int, _: bool) -> list[str]:
        over = self._random.choice(("torch.cuda.device_count()", "COUNT", "2"))
        last = self._random.choice(([], [f"    if {self._test()}:", "        continue", f"    {DIES}"]))
        return [f"for i in range({over}):", *self._inner(depth, False), *last]

    def _try(self, depth: int, _: bool) -> list[str]:
        caught = self._random.choice(("Exception", "(RuntimeError, AssertionError)", "ValueError"))
        return ["try:", *self._inner(depth, False), f"except {caught}:", "    y = 0"]

    def _suppress(self, depth: int, _: bool) -> list[str]:
        return ["with suppress(Exception):", *self._inner(depth, False)]

    def _assert(self, *_: object) -> list[str]:
        is_wrong = self._random.random() < 0.2
        return [f"assert {'torch.cuda.is_available()' if is_wrong else 'not torch.cuda.is_available()'}"]

    # A function is only left where no loop and no ``try`` is around it, which the tool does not follow.

    def _leave(self, *_: object) -> list[str]:
        return [f"if {self._test()}:", "    return None"]


def random_program(seed: int, *, is_open: bool) -> dict[str, str]:
    """Return the files of a program, by name; ``a.py`` is what runs.

    Args:
        seed: the seed.
        is_open: whether it also asks what has nothing to do with CUDA.
    """
    maker = _Maker(seed, is_open=is_open)
    files = dict.fromkeys(FILES, _HEAD)
    files["pkg/c.py"] += _SETUP + _function(maker, "deep") + _class(maker)
    files["pkg/__init__.py"] += "from .c import HAS, deep\n"
    files["b.py"] += "from pkg import HAS\nfrom pkg.c import COUNT, KIND, has_gpu, deep, Thing\n\n\n"
    maker.callable = ["deep()", "Thing().go()"]
    files["b.py"] += _function(maker, "middle") + _function(maker, "unused")
    files["a.py"] += "import b\nfrom pkg import deep as low, HAS\nfrom pkg.c import COUNT, KIND, has_gpu\n\n\n"
    maker.callable = ["low()", "b.middle()"]
    files["a.py"] += _function(maker, "main")
    files["a.py"] += 'if __name__ == "__main__":\n    main()\n'
    return files


def _function(maker: _Maker, name: str) -> str:
    return "\n".join([f"def {name}():", *(f"    {line}" for line in maker.block(3, in_function=True)), "", "", ""])


def _class(maker: _Maker) -> str:
    body = _function(maker, "go").replace("def go()", "def go(self)").rstrip("\n")
    return "class Thing:\n" + "".join(f"    {line}\n" for line in body.splitlines())


def _run(folder: str) -> str:
    """Return how a program ends: ``ok``, or its error."""
    sys.path.insert(0, folder)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(os.path.join(folder, "a.py"), run_name="__main__")
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    finally:
        sys.path.remove(folder)
        for name in ("b", "pkg", "pkg.c"):
            sys.modules.pop(name, None)
    return "ok"


if __name__ == "__main__":
    for each in sys.argv[1:]:
        print(_run(each))
