"""Builders by name and device, derived from the table of ops and deepspeed's names."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .engine.errors import OpError
from .op import KERNEL_DEVICES, ON_HOST, resolve
from .table import OPS

if TYPE_CHECKING:
    from collections.abc import Callable

    from .builder import OpBuilder
    from .op import Op

__all__ = [
    "BUILDERS",
    "SYCL_ON_HOST",
    "add_finder",
    "attributes",
    "builder_class",
    "every_builder",
    "find_builder",
    "load_op",
]

SYCL_ON_HOST = "sycl"
"""SYCL kernels on the CPU, which no accelerator's ``create_op_builder`` returns."""

_OPS = {op.builder: op for op in OPS}
_DEVICE_CLASSES = {**KERNEL_DEVICES, SYCL_ON_HOST: "op_builder.xpu.device:SyclOnHost"}

BUILDERS: dict[str, tuple[str, ...]]
"""The names of all builders, each with the devices it supports."""


def __getattr__(name: str) -> Any:
    """Return ``BUILDERS``, created on first use: finding an op's builder does not need deepspeed's names."""
    if name != "BUILDERS":
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return _devices_by_name()


@functools.cache
def _devices_by_name() -> dict[str, tuple[str, ...]]:
    from .deepspeed.names import DEEPSPEED_NAMES

    ops = {op.builder: op.devices for op in OPS}
    return ops | {name: alias.devices for name, alias in DEEPSPEED_NAMES.items()}


def every_builder() -> list[OpBuilder]:
    """Return a builder of every name for every device."""
    pairs = (
        (name, "cpu" if device == ON_HOST else device)
        for name, devices in _devices_by_name().items()
        for device in devices
    )
    return [cls() for name, device in pairs if (cls := builder_class(name, device)) is not None]


@functools.cache
def builder_class(class_name: str, device: str) -> type[OpBuilder] | None:
    """Return the class of a builder for a device, or None when the device has no builder of that name.

    Args:
        class_name: the builder's name, such as ``"CPUAdamBuilder"``.
        device: the device type, such as ``"cuda"``; ``"sycl"`` for SYCL kernels on the CPU.
    """
    op = _OPS.get(class_name)
    devices = _devices_by_name().get(class_name, ()) if op is None else op.devices
    if ON_HOST in devices and device != "cpu":
        return builder_class(class_name, "cpu")
    if device not in devices and ON_HOST not in devices and not (device == SYCL_ON_HOST and "xpu" in devices):
        return None
    if op is None:
        return _renamed(class_name, device)
    return resolve(op.own_builder) if op.own_builder else _builder_of(op, device)


def _builder_of(op: Op, device: str) -> type[OpBuilder]:
    if device == "cpu":
        base: Any = resolve("op_builder.host_library:HostLibrary")
        return _derived(base, op.builder, device, op.about, OP=op, NAME=op.name, SOURCES=op.host_sources())
    kind = resolve(_DEVICE_CLASSES[device])()
    held = builder_class(op.builder, "cpu")
    base = resolve("op_builder.device_kernels:DeviceKernels")
    return _derived(base, op.builder, device, f"{op.about}, on {device}", OP=op, NAME=op.name, HELD=held, DEVICE=kind)


def _renamed(class_name: str, device: str) -> type[OpBuilder]:
    from .deepspeed.names import DEEPSPEED_NAMES

    alias = DEEPSPEED_NAMES[class_name]
    builder, module = alias.on(device)
    if not builder:
        plain: Any = resolve(f"op_builder.deepspeed.{alias.plain}")
        return _derived(
            plain, class_name, device, f"Gives deepspeed's ``{alias.name}``", NAME=alias.name, MODULE=module
        )
    held, *also = (builder_class(name, device) for name in (builder, *alias.also))
    about = f"Loads ``{builder}`` as deepspeed's ``{alias.name}``"
    base: Any = resolve("op_builder.deepspeed.renamed:RenamedBuilder")
    return _derived(base, class_name, device, about, NAME=alias.name, HELD=held, ALSO=tuple(also), MODULE=module)


def _derived(base: type[OpBuilder], name: str, device: str, about: str, **attributes: Any) -> type[OpBuilder]:
    """Return a builder class with a name's data; it is pickled as an attribute of the device's package."""
    package = "xpu" if device == SYCL_ON_HOST else device
    shown = name.replace("Builder", "OnHostBuilder") if device == SYCL_ON_HOST else name
    return type(shown, (base,), {"__doc__": f"{about}.", "__module__": f"{__package__}.{package}", **attributes})


_finders: list[Callable[[str, str, Any], Any]] = []


def add_finder(finder: Callable[[str, str, Any], Any]) -> None:
    """Add a function that can change the result of ``get_op_builder``; the last one added has the last word.

    Args:
        finder: takes the class name, the device type and the class found so far (None if none); returns the class to use,
            or None for none.

    Raises:
        TypeError: when it is no function.
    """
    given: Any = finder
    if not callable(given):
        msg = (
            f"adding a finder failed: got {given!r}; expected a function of a class name, a device type and the class found "
            f"so far. Fix: pass the function itself."
        )
        raise TypeError(msg)
    if finder not in _finders:
        _finders.append(finder)


def find_builder(class_name: str, device: str) -> Any:
    """Return the class that ``get_op_builder`` returns: from the table, as changed by the finders.

    Args:
        class_name: the builder's class, such as ``"RMSNormBuilder"``.
        device: the device's name, such as ``"cpu"``.

    Returns:
        The class, or None if the device has no such builder.
    """
    found: Any = builder_class(class_name, device)
    for finder in _finders:
        found = finder(class_name, device, found)
    return found


def attributes(module: str, device: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a device's package, whose attributes are its builders.

    Args:
        module: the package's name.
        device: the device.
    """

    def attribute(name: str) -> Any:
        on_host = name.endswith("OnHostBuilder") and device == "xpu"
        found = builder_class(name.replace("OnHostBuilder", "Builder"), SYCL_ON_HOST if on_host else device)
        if found is None:
            msg = f"module {module!r} has no attribute {name!r}"
            raise AttributeError(msg)
        return found

    return attribute


def load_op(name: str) -> Any:
    """Build and load an op for the current accelerator.

    Args:
        name: the op's name or its builder's, such as ``"cpu_adam"`` or ``"CPUAdamBuilder"``.

    Returns:
        The object with the op's functions.

    Raises:
        OpError: when the accelerator does not have the op, or building or loading it fails.
    """
    from ..accelerator import get_accelerator
    from ..accelerator.detection import kernel_kind

    device = kernel_kind(get_accelerator().device_name())
    own = {class_name: builder_class(class_name, device) for class_name in _devices_by_name()}
    named = next((class_name for class_name, builder in own.items() if builder and name == builder.NAME), name)
    if (found := find_builder(named, device)) is not None:  # the finders are asked for one name: they may be slow
        return found().load()
    builders = {class_name: find_builder(class_name, device) for class_name in own}
    known = {getattr(builder, "NAME", class_name): builder for class_name, builder in builders.items() if builder}
    if name in known:  # a finder's op, under the class name that another device's builder has
        return known[name]().load()
    choices = ", ".join(known)
    msg = f"loading the op failed: '{device}' has no op {name!r}. Fix: use one of: {choices}."
    raise OpError(msg)
