"""Groups of ranks that the tests of this folder share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .ranks import Ranks, Scripts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="package")  # idle ranks are not free: a thread of gloo looks for messages every 10 ms
def ranks() -> Iterator[Callable[[int], Ranks]]:
    """Return the ranks of a world of a given size; a test that breaks its group must start its own processes."""
    made: dict[int, Ranks] = {}

    def of(world: int) -> Ranks:
        if world not in made:
            made[world] = Ranks(world)
        return made[world]

    yield of
    for one in made.values():
        one.close()


@pytest.fixture(scope="package")  # idle ranks are not free: a thread of gloo looks for messages every 10 ms
def ranks_on() -> Iterator[Callable[[str], Ranks]]:
    """Return the ranks of a world on several hosts, of which a letter for each rank tells the host: "aabb"."""
    made: dict[str, Ranks] = {}

    def on(hosts: str) -> Ranks:
        if hosts not in made:
            made[hosts] = Ranks(len(hosts), hosts)
        return made[hosts]

    yield on
    for one in made.values():
        one.close()


@pytest.fixture
def scripts(tmp_path: Path) -> Iterator[Scripts]:
    """Processes that each run a script as one rank, and can be killed."""
    made = Scripts(tmp_path)
    yield made
    made.close()
