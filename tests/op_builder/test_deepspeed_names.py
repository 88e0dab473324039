"""A builder written for deepspeed finds here what it calls there."""

from __future__ import annotations

import inspect
import json
import logging
from typing import TYPE_CHECKING

import pytest

from anyaccel.op_builder import CPUOpBuilder

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable


class Builder(CPUOpBuilder):
    BUILD_VAR = "DS_BUILD_ANSWER"
    NAME = "answer"

    def sources(self) -> list[str]:
        return ["answer.cpp", ""]


BUILDER = Builder()

CALLED_BY_BUILDERS = {
    "absolute_name", "sources", "include_paths", "cxx_args", "nvcc_args", "extra_ldflags", "libraries_args",
    "is_compatible", "builder", "load", "jit_load", "warning", "strip_empty_entries", "command_exists", "cpu_arch",
    "simd_width", "has_function", "version_dependent_macros", "is_rocm_pytorch", "is_sycl_enabled",
}  # fmt: skip


# In a process of its own: to import deepspeed is to choose an accelerator.
SIGNATURES = """
import inspect, json, sys
from deepspeed.ops.op_builder.builder import CUDAOpBuilder, OpBuilder
found = {name: getattr(OpBuilder, name, None) or getattr(CUDAOpBuilder, name) for name in sys.argv[1:]}
print(json.dumps({name: list(inspect.signature(function).parameters) for name, function in found.items()}))
"""


def test_every_name_has_deepspeeds_arguments(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    said = run_python(SIGNATURES, *sorted(CALLED_BY_BUILDERS), DS_ACCELERATOR="cpu").stdout
    theirs = json.loads(said.splitlines()[-1])
    assert set(theirs) == CALLED_BY_BUILDERS
    missing = {
        name: [
            argument
            for argument in arguments
            if argument not in inspect.signature(getattr(CPUOpBuilder, name)).parameters
        ]
        for name, arguments in theirs.items()
    }
    assert not any(missing.values()), missing


def test_empty_entries_are_dropped() -> None:
    assert BUILDER.strip_empty_entries(["a", "", "b"]) == ["a", "b"]


def test_commands_are_looked_for_in_path() -> None:
    assert BUILDER.command_exists("sh")
    assert BUILDER.command_exists(["no-such-command", "sh"])
    assert not BUILDER.command_exists("no-such-command")


def test_a_function_of_the_c_library_can_be_linked_and_another_cannot(caplog: pytest.LogCaptureFixture) -> None:
    assert BUILDER.has_function("cos", ("m",))
    assert not BUILDER.has_function("no_such_function", ("m",), verbose=True)
    assert "no_such_function cannot be linked" in caplog.text


def test_warnings_name_the_op(caplog: pytest.LogCaptureFixture) -> None:
    BUILDER.warning("it is slow here")
    assert caplog.record_tuples[0][1:] == (logging.WARNING, "the op 'answer': it is slow here")


def test_is_compatible_says_why_not(caplog: pytest.LogCaptureFixture) -> None:
    assert not BUILDER.is_compatible(verbose=True)
    assert "the op 'answer' cannot be loaded: finding a source" in caplog.text
