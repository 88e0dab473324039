"""Progress of long work: to watchers, otherwise in the log, less and less often."""

from __future__ import annotations

import errno
import logging
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from anyaccel.accelerator import host
from anyaccel.op_builder.engine import environment, spawn
from anyaccel.op_builder.engine import progress as progress_module
from anyaccel.op_builder.engine.ninja_file import default_jobs
from anyaccel.op_builder.engine.progress import Progress, Reporter, watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyaccel.op_builder import CPUOpBuilder
    from anyaccel.op_builder.engine.cache import Cache


def test_the_log_hears_of_work_that_takes_long(caplog: pytest.LogCaptureFixture) -> None:
    reporter = Reporter("slow_op", "building", "ziglang builds its own C++ library first")
    for second in range(60):
        reporter.tick(float(second))
    assert [record.getMessage() for record in caplog.records] == [
        f"building the op 'slow_op': {second} s (ziglang builds its own C++ library first)" for second in (5, 15, 45)
    ]
    assert caplog.records[0].levelno == logging.WARNING


def test_the_log_hears_of_a_program_that_does_not_answer(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "_FIRST_SAID_SECONDS", 0.0)
    spawn.run([sys.executable, "-c", "import time; time.sleep(1.5)"], timeout=300)
    said = [record.getMessage() for record in caplog.records]
    assert said[0].startswith("waiting for ")
    assert "time.sleep(1.5)" in said[0]
    assert said[0].endswith(" s (it is ended after 300 s)")
    caplog.clear()
    monkeypatch.undo()
    spawn.run([sys.executable, "-c", "pass"], timeout=300)
    assert not caplog.records


def test_a_watcher_hears_every_tick_in_place_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Progress] = []
    reporter = Reporter("slow_op", "building")
    with watch(seen.append):
        for second in range(10):
            reporter.tick(float(second))
    assert [progress.elapsed_seconds for progress in seen] == list(range(10))
    assert not caplog.records


def test_a_watcher_that_fails_ends_no_build(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], caplog: pytest.LogCaptureFixture
) -> None:
    """The disk that its message went to is full, which says nothing about the cache."""

    def failing(_: Progress) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with watch(failing):
        assert make_builder().build().binary.is_relative_to(cache.root)
    assert "a callback of watch() failed" in caplog.text


def test_a_real_build_ticks(cache: Cache, make_builder: Callable[..., CPUOpBuilder]) -> None:
    seen: list[Progress] = []
    with watch(seen.append):
        make_builder(source='#include <regex>\n#include "answer.h"\nextern "C" int answer() { return 1; }').build()
    assert {(progress.op, progress.doing) for progress in seen} == {("answer", "building")}
    assert seen[-1].elapsed_seconds >= seen[0].elapsed_seconds == 0


def test_watchers_in_threads_do_not_disturb_each_other() -> None:
    seen: list[set[str]] = [set() for _ in range(8)]

    def watch_often(number: int) -> None:
        for _ in range(200):
            with watch(lambda progress: seen[number].add(progress.op)):
                Reporter(f"op{number}", "building").tick(0.0)

    threads = [threading.Thread(target=watch_often, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(f"op{number}" in ops for number, ops in enumerate(seen))
    before = [set(ops) for ops in seen]
    Reporter("later", "building").tick(0.0)
    assert seen == before  # nobody watches any more


@pytest.mark.parametrize(
    ("available_bytes", "cores", "jobs"), [(3 << 30, 64, 1), (9 << 30, 64, 4), (1 << 40, 3, 3), (0, 2, 1)]
)
def test_jobs_are_bounded_by_cores_and_by_the_containers_memory(
    monkeypatch: pytest.MonkeyPatch, available_bytes: int, cores: int, jobs: int
) -> None:
    monkeypatch.setattr(host, "available_memory_bytes", lambda: available_bytes)
    monkeypatch.setattr(host, "processor", lambda: host.Processor("", 0, cores))
    assert default_jobs() == jobs


def test_jobs_may_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYACCEL_BUILD_JOBS", "7")
    assert environment.build_jobs() == 7
    for wrong in ("0", "-1", "many", "1.5"):
        monkeypatch.setenv("ANYACCEL_BUILD_JOBS", wrong)
        with pytest.raises(ValueError, match=r"expected a number of 1 or more. Fix: unset it for one job per core"):
            environment.build_jobs()
