"""Random operations through torch, on one host and on simulated ones, with refusals, late, stopped and killed ranks.

``ANYACCEL_FUZZ_TORCH="1000 500" pytest tests/distributed/test_random_programs.py`` plays 500 programs from seed 1000 on.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from typing import TYPE_CHECKING

import pytest

from .random_program import Program
from .ranks import Scripts

if TYPE_CHECKING:
    from pathlib import Path

CHOSEN = os.environ.get("ANYACCEL_FUZZ_TORCH", "")  # the first seed, and how many
SEEDS = [1, 4, 9, 10, 12]  # each ending, on one host and on two


def seeds() -> list[int]:
    if not CHOSEN:
        return SEEDS
    first, count = map(int, CHOSEN.split())
    return list(range(first, first + count))


@pytest.mark.parametrize("seed", seeds())
def test_each_outcome_is_right_and_no_rank_hangs(tmp_path: Path, seed: int) -> None:
    program = Program(seed)
    drawn = random.Random(seed)  # noqa: S311
    scripts = Scripts(tmp_path)
    try:
        scripts.start(f"from tests.distributed.random_program import play\nplay(rank, store, {seed})", program.world)
        survivors = program.survivors()
        while scripts.is_running(*survivors) and drawn.random() < 0.7:  # one rank does not run for a while
            stopped = drawn.choice(survivors)
            time.sleep(drawn.random() * 0.2)
            with contextlib.suppress(ProcessLookupError):  # it has ended
                scripts.signal(stopped, signal.SIGSTOP)
                time.sleep(drawn.random() * 0.2)
                scripts.signal(stopped, signal.SIGCONT)
        outputs = scripts.outputs(*survivors)
        assert all(output.endswith("done\n") for output in outputs), outputs
    except AssertionError as error:
        raise AssertionError(program.described()) from error
    finally:
        scripts.close()
