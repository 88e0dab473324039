"""torch's own DistributedTest, the tests that it runs for gloo on CPUs, on shm.

    python -m tests.distributed.torchs_tests --ranks 2
    python -m tests.distributed.torchs_tests --ranks 4 --backend gloo test_all_reduce_sum
    python -m tests.distributed.torchs_tests --ranks 2 --of mpi all_to_all

Prints each test, and the counts. The exit code is 1 where a test fails that is not among those expected to.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import unittest
from typing import Any

# Tests that fail, by the number of ranks.
EXPECTED = {
    # These ask for rank 2 of the group, whatever the number of ranks: they fail on every backend.
    2: [
        "test_all_to_all_group", "test_all_to_all_single_equal_split_group", "test_all_to_all_single_unequal_split_group"
    ],
    # On gloo all ranks but the first say that they wait for rank 0; on shm they say who is missing.
    4: ["test_monitored_barrier_gloo"],
}  # fmt: skip


class _Result(unittest.TextTestResult):
    """Counts those that passed, too."""

    passed = 0

    def addSuccess(self, test: Any) -> None:
        super().addSuccess(test)
        self.passed += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--backend", default="shm", help="gloo: what torch's own backend gives here")
    parser.add_argument("--of", default="gloo", help="the backend whose tests they are")
    parser.add_argument("words", nargs="*", default=[""], help="tests whose names have one of them; all otherwise")
    chosen = parser.parse_args()
    os.environ.update(BACKEND=chosen.of, WORLD_SIZE=str(chosen.ranks), TEMP_DIR=tempfile.gettempdir())

    from .cases import TorchsTests, run_on

    run_on(chosen.backend)
    every = unittest.defaultTestLoader.getTestCaseNames(TorchsTests)
    names = [name for name in every if any(word in name for word in chosen.words)]
    runner = unittest.TextTestRunner(sys.stdout, resultclass=_Result, verbosity=2)
    result: Any = runner.run(unittest.TestSuite(map(TorchsTests, names)))
    failed = sorted({test._testMethodName for test, _ in (*result.failures, *result.errors)})
    counts = f"{result.passed} passed, {len(failed)} failed, {len(result.skipped)} skipped"
    print(f"{chosen.backend}, {chosen.ranks} ranks: {counts}; failed: {', '.join(failed) or 'none'}")
    expected = EXPECTED.get(chosen.ranks, []) if chosen.backend == "shm" else []
    sys.exit(any(name not in expected for name in failed))


main()
