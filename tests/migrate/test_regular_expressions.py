"""Regular expressions whose time is exponential: a file of a user's that has what they repeat, but no end, takes hours."""

from __future__ import annotations

import importlib
import pkgutil
import re
import signal
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from anyaccel import migrate

PIECES = ("# ", '"a",', '#"a",\n', "a", "a.", " ", "\n", "(", "()", ",", "a=", "'a' ")
"""What is repeated, with the parts of an example."""
REPEATS = {_constants.MAX_REPEAT, _constants.MIN_REPEAT}


def repeats_a_repeat(parsed: Any, inside: bool = False) -> bool:
    """Return whether something that may be repeated without end contains another such thing."""
    if isinstance(parsed, tuple) and parsed and parsed[0] in REPEATS and parsed[1][1] == _constants.MAXREPEAT:
        return inside or repeats_a_repeat(parsed[1][2], inside=True)
    parts = parsed if isinstance(parsed, list | tuple | _parser.SubPattern) else ()
    return any(repeats_a_repeat(part, inside) for part in parts)


def suspects() -> list[Any]:
    modules = [
        importlib.import_module(one.name) for one in pkgutil.iter_modules(migrate.__path__, f"{migrate.__name__}.")
    ]
    found = {
        f"{module.__name__.rpartition('.')[2]}.{name}": value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, re.Pattern) and repeats_a_repeat(_parser.parse(value.pattern, value.flags))
    }
    return [pytest.param(value, id=name) for name, value in found.items()]


def examples(pattern: re.Pattern[str]) -> list[str]:
    found: list[str] = []

    @seed(1)
    @settings(
        max_examples=8, database=None, phases=[Phase.generate], deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.from_regex(pattern))
    def collect(text: str) -> None:
        found.append(text[:60])

    collect()
    return found


def ends(pattern: re.Pattern[str], seconds: int = 20) -> bool:
    """Return whether the expression ends where what it repeats comes forty times, and then what it never expects."""

    def give_up(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)  # it takes milliseconds, or ages
    try:
        for text in examples(pattern):
            for place in range(len(text) + 1):
                for piece in {*PIECES, *(text[place : place + length] for length in (1, 2, 3))}:
                    pattern.search(text[:place] + piece * 40 + "\0")
    except TimeoutError:
        return False
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return True


@pytest.mark.parametrize("pattern", suspects())
def test_no_text_takes_ages(pattern: re.Pattern[str]) -> None:
    assert ends(pattern)


def test_an_expression_that_reads_a_comment_in_many_ways_is_found() -> None:
    pattern = re.compile(r"^__all__ = \[((?:\s|,|#[^\n]*|\"\w+\")*)\]$", re.MULTILINE)
    assert repeats_a_repeat(_parser.parse(pattern.pattern, pattern.flags))
    assert not ends(pattern, 2)
