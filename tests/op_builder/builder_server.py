"""Builds an op in a new process for each request: a parent with torch imported forks, so that no request imports it again.

Reads a request as JSON from each line of standard input, and answers with one line of JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

import torch  # noqa: F401  # this import is slow

from anyaccel.op_builder import CPUOpBuilder


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Build or find the op of a request, and call it."""
    os.environ.update({name: value for name, value in request["environment"].items() if value is not None})
    for name in (name for name, value in request["environment"].items() if value is None):
        os.environ.pop(name, None)

    class SiteBuilder(CPUOpBuilder):
        NAME = "site"
        SOURCES = tuple(request["sources"])
        STABLE_ABI = True

        def include_paths(self) -> list[str]:
            return list(request["include_dirs"])

        def cxx_args(self) -> list[str]:
            return ["-O0", "-std=c++20", *request["cxx_args"]]

        def extra_ldflags(self) -> list[str]:
            return list(request["ldflags"])

        def libraries_args(self) -> list[str]:
            return list(request["libraries"])

    builder = SiteBuilder()
    found = builder.find_built()
    entry = found or builder.build()
    library = ctypes.CDLL(str(entry.binary))
    with open(entry.binary, "rb") as file:
        content = file.read()
    return {
        "value": library.answer(),
        "was_built": found is None,
        "has_extra": hasattr(library, "extra"),
        "texts": [text for text in request["texts"] if text.encode() in content],
    }


def main() -> None:
    """Answer requests until standard input ends."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            request = json.loads(line)
            try:
                told = answer(request)
            except BaseException as error:
                told = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps({**told, "number": request["number"]}), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
