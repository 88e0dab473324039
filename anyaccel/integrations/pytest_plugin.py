"""The pytest plug-in: the fixture ``accelerator``, and the fixture and marker ``requires_accelerator``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..accelerator import DeepSpeedAccelerator

__all__ = ["accelerator", "requires_accelerator"]

_MARKER = (
    "requires_accelerator(*names): skip the test unless the accelerator is one of these, such as 'cuda'; "
    "without names, unless it is any but the CPU."
)


@pytest.fixture
def accelerator() -> DeepSpeedAccelerator:
    """Return the result of :func:`anyaccel.get_accelerator`."""
    from .. import get_accelerator

    return get_accelerator()


@pytest.fixture
def requires_accelerator() -> Callable[..., None]:
    """Return a function that skips the test unless the accelerator is one of its arguments."""
    return _require


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _MARKER)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose marker requires another accelerator, before its fixtures are set up."""
    for marker in item.iter_markers("requires_accelerator"):
        _require(*marker.args, **marker.kwargs)


def _require(*names: str, **others: object) -> None:
    from .. import get_accelerator

    if others:
        raise _no_names(others)
    if not all(isinstance(name, str) and name == name.lower() and ":" not in name for name in names):
        raise _no_names(names)  # no device has such a name, so that the test would never run
    here = get_accelerator().device_name()
    if not (here in names if names else here != "cpu"):
        pytest.skip(f"needs the accelerator {' or '.join(names) or 'of a device'}; here it is {here}")


def _no_names(got: object) -> pytest.UsageError:
    return pytest.UsageError(
        f"reading the names for requires_accelerator failed: got {got!r}; "
        f"expected names of devices, in lower case and without an index. "
        f"Fix: requires_accelerator('cuda', 'xpu')."  # anyaccel: ignore[device-name]
    )
