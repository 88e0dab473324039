"""Times calls on a device, by events around replays of a graph, without the host's share."""

from __future__ import annotations

import random
import statistics
import time
from typing import TYPE_CHECKING

from anyaccel import get_accelerator

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["device_times"]


def device_times(candidates: dict[str, Callable[[], object]], device: str, rounds: int = 15) -> dict[str, float]:
    """Return each candidate's median time in seconds; the candidates take turns, in a new order each round.

    Args:
        candidates: the calls to time, by name. If a graph cannot capture a candidate, its calls are timed one by one; if it
            raises, it is left out.
        device: the current accelerator's device; on ``"cpu"`` the host's clock is used.
        rounds: the number of times that each is timed.
    """
    runs: dict[str, Callable[[], object]] = {}
    for name, candidate in candidates.items():
        try:
            candidate()
            runs[name] = candidate if device == "cpu" else _replayed(candidate)
        except Exception as error:  # noqa: BLE001 - another project's code may raise anything
            print(f"{name} is left out: {str(error).splitlines()[0]}")
    measure = _on_host if device == "cpu" else _on_device
    times: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs.items())
    shuffle = random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)
        for name, run in order:
            times[name].append(measure(run))
    return {name: statistics.median(found) for name, found in times.items()}


def _replayed(candidate: Callable[[], object]) -> Callable[[], object]:
    accelerator = get_accelerator()
    side = accelerator.Stream()
    side.wait_stream(accelerator.current_stream())
    with accelerator.stream(side):  # first calls allocate, which a capture does not allow
        for _ in range(3):
            candidate()
    accelerator.current_stream().wait_stream(side)
    accelerator.synchronize()
    try:
        graph = accelerator.create_graph()
        with accelerator.capture_to_graph(graph):
            candidate()
    except RuntimeError as error:
        print(f"timed without a graph: {str(error).splitlines()[0]}")
        return candidate
    return lambda: accelerator.replay_graph(graph)


def _on_host(run: Callable[[], object]) -> float:
    run()
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _on_device(run: Callable[[], object]) -> float:
    begin, end = (get_accelerator().Event(enable_timing=True) for _ in range(2))
    run()
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3
