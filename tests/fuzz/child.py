"""The process that makes the calls. It writes down each case before the call, as the call may crash."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import sys
import warnings
import zlib
from pathlib import Path
from typing import Any

import torch

from .arenas import Arena
from .search import Search
from .targets import Target, load_every_op, public_targets, raw_targets

__all__ = ["main", "targets_of"]

_SECONDS_WITHOUT_PROGRESS = 120
_CALLS_A_ROUND = 100


def targets_of(libraries: list[str], namespace: str, only: list[str]) -> dict[str, Target]:
    """Return the targets to fuzz: the ops of given libraries, or every op of the project and every public function."""
    for library in libraries:
        torch.ops.load_library(library)
    loaded: dict[str, Any] = {} if libraries else load_every_op(only)
    targets = [*raw_targets(namespace), *public_targets(loaded, with_fronts=bool(loaded) and not only)]
    return {target.name: target for target in targets}


def main(work: dict[str, Any]) -> None:
    """Fuzz targets one after another.

    Args:
        work: ``tasks``, each with a target's name, a number of calls and a seed; ``case`` and ``results``, files to write; and
            the ``libraries``, the ``namespace`` and the ops to load, ``only``.
    """
    warnings.simplefilter("ignore")
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):
        faulthandler.enable()
        resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))  # an overflowing size must not take the machine
    torch.set_num_threads(1)
    targets = targets_of(work["libraries"], work["namespace"], work["only"])
    pool: list[Arena] = []
    case = os.open(work["case"], os.O_WRONLY | os.O_CREAT)
    with Path(work["results"]).open("a", encoding="utf-8") as results:
        for task in work["tasks"]:
            search = Search(targets[task["target"]], zlib.crc32(task["target"].encode()) + task["seed"], pool, None)

            def write_down(line: str, search: Search = search) -> None:
                os.pwrite(case, f"[{search.calls}, {search.accepted}, {line}]\n".encode(), 0)

            search.write_down = write_down
            while search.calls < task["calls"]:
                faulthandler.dump_traceback_later(_SECONDS_WITHOUT_PROGRESS, exit=True)
                before = search.calls
                search.run(min(_CALLS_A_ROUND, task["calls"] - search.calls))
                if search.calls == before:
                    break
            faulthandler.cancel_dump_traceback_later()
            written = {
                "target": task["target"], "calls": search.calls, "accepted": search.accepted,
                "messages": len(search.messages), "most": search.messages.most_common(4), "findings": search.findings,
            }  # fmt: skip
            results.write(json.dumps(written) + "\n")
            results.flush()
    sys.stdout.flush()
    os._exit(0)  # what torch and sanitizers do at process exit is not tested
