"""Builds or finds the op of a site, whose JSON is the first argument, calls it, and prints what came of it as JSON."""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

from anyaccel.op_builder import CPUOpBuilder


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Build or find the op of a request, and call it."""

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


try:
    told = answer(json.loads(sys.argv[1]))
except BaseException as error:
    told = {"error": f"{type(error).__name__}: {error}"}
print(json.dumps(told))
