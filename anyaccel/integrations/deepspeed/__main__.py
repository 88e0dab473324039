"""Runs an unmodified program with deepspeed on our accelerator and ops.

``python -m anyaccel.integrations.deepspeed train.py …``, ``… -m package.module …``, or ``… ds_report`` (any command beside
this Python or in PATH that is Python). For several ranks: ``deepspeed --module anyaccel.integrations.deepspeed train.py …``.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import os
import runpy
import shutil
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

from . import install

_run_module_as_main: Any = vars(runpy)["_run_module_as_main"]  # what `python -m` calls

_USAGE = "usage: python -m anyaccel.integrations.deepspeed [-m MODULE | FILE | COMMAND] [ARGUMENT ...]"

_OF_DEEPSPEED = "deepspeed [OPTION …] --module"
_OF_TORCH = "torchrun [OPTION …] -m"
_LAUNCHERS = {
    ("deepspeed",): _OF_DEEPSPEED,
    ("deepspeed.pt",): _OF_DEEPSPEED,
    ("ds",): _OF_DEEPSPEED,
    ("deepspeed.launcher.runner",): _OF_DEEPSPEED,
    ("deepspeed.launcher.launch",): _OF_DEEPSPEED,
    ("torchrun",): _OF_TORCH,
    ("torch.distributed.run",): _OF_TORCH,
    ("torch.distributed.launch",): _OF_TORCH,
    ("accelerate", "launch"): "accelerate launch [OPTION …] -m",
    ("accelerate-launch",): "accelerate launch [OPTION …] -m",
    ("accelerate.commands.launch",): "accelerate launch [OPTION …] -m",
    ("accelerate.commands.accelerate_cli", "launch"): "accelerate launch [OPTION …] -m",
}


def _command(name: str) -> str | None:
    """Return the path of a command of this environment, which need not be activated, or else of one in PATH."""
    return shutil.which(name, path=os.path.dirname(sys.executable)) or shutil.which(name)


def _is_program(path: Path) -> bool:
    """Return whether Python runs a path: a file, or a folder with a ``__main__``; another one may have a command's name."""
    return path.is_file() or (path / "__main__.py").is_file()


def _installed(word: str) -> str:
    """Return the name of a command of this environment that is given by its path; a program's own file keeps its path."""
    name = os.path.basename(word)
    command = _command(name)
    return name if command is not None and os.path.exists(word) and os.path.samefile(word, command) else word


def _refuse_launchers(arguments: list[str]) -> None:
    """Stop before a launcher starts programs that would not have the integration.

    Raises:
        SystemExit: with the right command.
    """
    words = arguments[1:] if arguments[:1] == ["-m"] else [*map(_installed, arguments[:1]), *arguments[1:]]
    found = next((start for start in _LAUNCHERS if words[: len(start)] == list(start)), None)
    if found is not None:
        msg = (
            f"running {' '.join(found)!r} failed: it starts other programs, which would use stock deepspeed. "
            f"Fix: {_LAUNCHERS[found]} anyaccel.integrations.deepspeed FILE …"
        )
        raise SystemExit(msg)


def _new_main() -> ModuleType:
    """Make an empty module ``__main__`` for the program, and return it.

    It stays until the interpreter ends, as with ``python FILE``: threads that are still running then, and functions of
    ``atexit``, may pickle the program's classes. :mod:`runpy`'s public functions put back the module that was there before.
    """
    main = ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main
    return main


def _run(arguments: list[str]) -> None:
    if "".join(arguments[:1]).startswith(("--local_rank", "--local-rank")):
        # deepspeed's and torch's launchers put this option before the program; the program gets it as its first argument.
        named = 2 if arguments[1:2] == ["-m"] else 1
        arguments = [*arguments[1 : named + 1], arguments[0], *arguments[named + 1 :]]
    _refuse_launchers(arguments)
    if arguments[:1] == ["-m"] and len(arguments) > 1:
        sys.argv = arguments[1:]
        _new_main()
        _run_module_as_main(arguments[1])
        return
    if not arguments or arguments[0].startswith("-"):
        raise SystemExit(_USAGE)
    program = arguments[0] if _is_program(Path(arguments[0])) else _command(arguments[0])
    if program is None:
        msg = f"running a program failed: got {arguments[0]!r}; expected a file, or a command in PATH.\n{_USAGE}"
        raise SystemExit(msg)
    sys.argv = [program, *arguments[1:]]
    main = _new_main()
    # Like `python FILE`: modules in the program's folder are importable.
    is_packed = Path(program).is_dir() or zipfile.is_zipfile(program)
    if not getattr(sys.flags, "safe_path", False):  # then the first entry is not ours
        sys.path[0] = os.path.dirname(os.path.abspath(program))  # links are not resolved
    if is_packed:
        sys.path.insert(0, program)
        _run_module_as_main("__main__", alter_argv=False)
        return
    is_compiled = program.endswith(".pyc")
    kind = importlib.machinery.SourcelessFileLoader if is_compiled else importlib.machinery.SourceFileLoader
    loader: Any = kind("__main__", program)
    main.__dict__.update(__file__=program, __loader__=loader, __cached__=None)
    code = loader.get_code("__main__") if is_compiled else loader.source_to_code(Path(program).read_bytes(), program)
    exec(code, main.__dict__)  # noqa: S102  # this is what the command is for


install()
_run(sys.argv[1:])
