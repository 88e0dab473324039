"""Takes an object of any class as an accelerator, if it has the required members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import NotAnAcceleratorError

if TYPE_CHECKING:
    from .abstract_accelerator import DeepSpeedAccelerator

__all__ = ["adopt"]


def adopt(accel_obj: Any) -> DeepSpeedAccelerator:
    """Check that an object has every required member, and add the members that are newer than its class."""
    from .abstract_accelerator import DeepSpeedAccelerator

    names = set(dir(type(accel_obj))) | set(getattr(accel_obj, "__dict__", {}))  # names only: properties must not run
    delegates = hasattr(type(accel_obj), "__getattr__")

    def has(name: str) -> bool:
        return name in names or (delegates and hasattr(accel_obj, name))

    is_ours = isinstance(accel_obj, DeepSpeedAccelerator)
    is_class = isinstance(accel_obj, type)
    missing = [] if is_ours else sorted(each for each in DeepSpeedAccelerator.__abstractmethods__ if not has(each))
    if missing or is_class:
        some = ", ".join(missing[:5]) + (f" and {len(missing) - 5} others" if len(missing) > 5 else "")
        raise _not_an_accelerator(accel_obj, "a class" if is_class else f"which lacks {some}")
    try:
        for name, member in () if is_ours else vars(DeepSpeedAccelerator).items():
            if not (has(name) or name.startswith(("__", "_abc_")) or isinstance(member, property)):
                bind = getattr(member, "__get__", None)
                setattr(accel_obj, name, member if bind is None else bind(accel_obj, type(accel_obj)))
        for name, value in (("_communication_backend_name", None), ("_compile_backend", "inductor")):
            if is_ours and not has(name):  # a class whose __init__ does not call ours
                setattr(accel_obj, name, value)
        if not has("_name"):
            accel_obj._name = accel_obj.device_name()
    except (AttributeError, TypeError) as error:
        raise _not_an_accelerator(accel_obj, f"whose attributes cannot be set ({error})") from error
    return accel_obj  # type: ignore[no-any-return]


def _not_an_accelerator(accel_obj: Any, problem: str) -> NotAnAcceleratorError:
    return NotAnAcceleratorError(
        f"setting the accelerator failed: got {accel_obj!r}, {problem}; expected an instance of DeepSpeedAccelerator "
        f"or of a class with all its members. Fix: subclass anyaccel.DeepSpeedAccelerator and pass an instance."
    )
