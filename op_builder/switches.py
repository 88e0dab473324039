"""deepspeed's variables that select ops for ahead-of-time builds: ``DS_BUILD_OPS``, and one per builder."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .builder import OpBuilder

__all__ = ["switched_on"]

_EVERY = "DS_BUILD_OPS"
_RUNTIMES = ("cuda_runtime", "hip_runtime")

_logger = logging.getLogger(__name__)


def switched_on(builders: Sequence[OpBuilder], switches: Mapping[str, bool]) -> list[OpBuilder]:
    """Return the builders whose ops are selected.

    An op is selected when the variable of any builder that loads it is on, and not selected when only variables that are off are
    set. Otherwise ``DS_BUILD_OPS`` decides, which is on by default if no op's variable is. GPU kernels also select the runtimes
    that start them.

    Args:
        builders: all builders.
        switches: the variables that are set, by name.
    """
    said: dict[str, bool] = {}
    for builder in builders:
        value = switches.get(builder.build_var())
        if value is not None:
            said |= {op: value or said.get(op, False) for op in _loads(builder)}
    known = {_EVERY, *(builder.build_var() for builder in builders)}
    for name in sorted(switches.keys() - known):
        if switches[name]:
            _logger.warning("%s is set, but anyaccel has no such op; nothing is built for it", name)
    default = switches.get(_EVERY, not any(said.values()))
    wanted = [builder for builder in builders if said.get(_loads(builder)[0], default)]
    has_kernels = any(op.kernels for builder in wanted if (op := getattr(builder, "OP", None)) is not None)
    runtimes = [name for name in _RUNTIMES if has_kernels and name not in said]
    wanted += [builder for builder in builders if builder.NAME in runtimes and builder not in wanted]
    return wanted


def _loads(builder: OpBuilder) -> list[str]:
    """Return the names of the ops that a builder loads, its own first."""
    held = getattr(builder, "HELD", None)
    return [(held or builder).NAME, *(one.NAME for one in getattr(builder, "ALSO", ()))]
