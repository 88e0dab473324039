"""torch's DistributedTest on a backend; :mod:`tests.distributed.torchs_tests.__main__` runs it.

The environment decides, as this is imported, which tests are skipped: by ``WORLD_SIZE`` and ``BACKEND``, whatever then runs them.
"""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

from torch.testing._internal.distributed import distributed_test

_PREPARED = ["torch.distributed.fsdp", "torch.distributed.optim", __name__]


class _Backend(str):
    """The name of the backend that runs the tests; where their bodies ask for the one whose tests they are, they get a yes."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return other == os.environ["BACKEND"] or str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other


def _run_rank(environment: dict[str, str], backend: str, function: Any, arguments: Any, named: Any) -> None:
    """Run a rank's part, in a process that was forked before the environment was what it is now."""
    os.environ.update(environment)
    run_on(backend)
    function(*arguments, **named)


class TorchsTests(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """Each test starts its ranks, as in torch's test_distributed_spawn.py, but as forks of a process that has torch."""

    def setUp(self) -> None:
        super().setUp()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PREPARED)

        def process(target: Any, name: str, args: Any, kwargs: Any) -> Any:
            chosen = (dict(os.environ), str(distributed_test.BACKEND), target, args, kwargs)
            return context.Process(target=_run_rank, name=name, args=chosen)

        self._start_processes(process)


def run_on(backend: str) -> None:
    """Let the tests make their groups on a backend."""
    distributed_test.BACKEND = _Backend(backend)
