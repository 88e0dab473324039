"""Op builders, launchers' environment variables, communication and torch.compile."""

from __future__ import annotations

import importlib.util
import re
from typing import TYPE_CHECKING

from .expect import expect, expect_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...accelerator import DeepSpeedAccelerator

__all__ = ["CHECKS"]


def _communication_backend_name(accelerator: DeepSpeedAccelerator) -> None:
    name = accelerator.communication_backend_name()
    expect_type(name, str, "communication_backend_name()")
    expect(bool(name), "communication_backend_name() is empty")


def _communication_backend_version(accelerator: DeepSpeedAccelerator) -> None:
    found = accelerator.communication_backend_version()
    expect(re.search(r"\d", str(found)) is not None, f"communication_backend_version() is {found!r}; expected numbers")


def _op_builder_dir(accelerator: DeepSpeedAccelerator) -> None:
    expect_type(accelerator.op_builder_dir(), str, "op_builder_dir()")
    named = accelerator.op_builder_dir()
    expect(bool(named), "op_builder_dir() is empty")
    try:
        found = importlib.util.find_spec(named)
    except ModuleNotFoundError:
        found = None
    expect(found is not None, f"op_builder_dir() is {named!r}, which is no package here")


def _get_op_builder(accelerator: DeepSpeedAccelerator) -> None:
    found = accelerator.get_op_builder("NoSuchBuilder")
    expect(found is None, f"get_op_builder('NoSuchBuilder') is {found!r}; expected None")


def _create_op_builder(accelerator: DeepSpeedAccelerator) -> None:
    made = accelerator.create_op_builder("NoSuchBuilder")
    expect(made is None, f"create_op_builder('NoSuchBuilder') is {made!r}; expected None")


def _build_extension(accelerator: DeepSpeedAccelerator) -> None:
    expect(hasattr(accelerator.build_extension(), "run"), "build_extension() is no setuptools command")


def _export_envs(accelerator: DeepSpeedAccelerator) -> None:
    expect_type(accelerator.export_envs(), list, "export_envs()")
    for prefix in accelerator.export_envs():
        expect_type(prefix, str, "an entry of export_envs()")


def _visible_devices_envs(accelerator: DeepSpeedAccelerator) -> None:
    variables = accelerator.visible_devices_envs()
    expect_type(variables, list, "visible_devices_envs()")
    environment: dict[str, str] = {}
    accelerator.set_visible_devices_envs(environment, [1, "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"])
    wanted = dict.fromkeys(variables, "1,GPU-8932f937-d72c-4106-c12f-20bd9faed9f6")
    expect(environment == wanted, f"set_visible_devices_envs leaves {environment}; expected {wanted}")


def _compile_backend(accelerator: DeepSpeedAccelerator) -> None:
    previous = accelerator.get_compile_backend()
    accelerator.set_compile_backend("eager")
    found = accelerator.get_compile_backend()
    accelerator.set_compile_backend(previous)
    expect(found == "eager", f"after set_compile_backend('eager'), get_compile_backend() is {found!r}")
    try:
        accelerator.set_compile_backend("no_such_backend")
    except ValueError:
        return
    expect(False, "set_compile_backend('no_such_backend') does not raise ValueError")


CHECKS: dict[str, Callable[[DeepSpeedAccelerator], None]] = {
    "communication_backend_name": _communication_backend_name,
    "communication_backend_version": _communication_backend_version,
    "op_builder_dir": _op_builder_dir,
    "get_op_builder": _get_op_builder,
    "create_op_builder": _create_op_builder,
    "build_extension": _build_extension,
    "export_envs": _export_envs,
    "visible_devices_envs": _visible_devices_envs,
    "set_visible_devices_envs": _visible_devices_envs,
    "get_compile_backend": _compile_backend,
    "set_compile_backend": _compile_backend,
}
