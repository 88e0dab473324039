"""Streams, events and graphs."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING

import torch

from .expect import expect, expect_type, last_index, made_current

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...accelerator import DeepSpeedAccelerator

__all__ = ["CHECKS"]


def _stream_class(accelerator: DeepSpeedAccelerator) -> None:
    stream = accelerator.Stream()
    stream.synchronize()
    stream.wait_stream(accelerator.current_stream())
    stream.record_event()
    expect_type(stream.query(), bool, "Stream().query()")


def _stream(accelerator: DeepSpeedAccelerator) -> None:
    outer, inner = accelerator.current_stream(), accelerator.Stream()
    with accelerator.stream(inner):
        expect(accelerator.current_stream() == inner, "inside stream(s), current_stream() is not s")
    expect(accelerator.current_stream() == outer, "after stream(s), current_stream() is not what it was")
    with accelerator.stream(None):
        expect(accelerator.current_stream() == outer, "stream(None) changes the current stream")


def _current_stream(accelerator: DeepSpeedAccelerator) -> None:
    found = accelerator.current_stream()
    expect(
        hasattr(found, "synchronize") and hasattr(found, "wait_stream"),
        f"current_stream() is {found!r}, which is no stream",
    )
    index = accelerator.current_device()
    expect(accelerator.current_stream(index) == accelerator.current_stream(), "current_stream(i) is not that of i")
    last = last_index(accelerator)
    with made_current(accelerator, last):
        there = accelerator.current_stream()
    expect(accelerator.current_stream(last) == there, f"current_stream({last}) is not what is current on that device")


def _default_stream(accelerator: DeepSpeedAccelerator) -> None:
    expect(accelerator.default_stream() is not None, "default_stream() is None")
    expect(accelerator.default_stream() == accelerator.default_stream(), "default_stream() is another one each time")
    accelerator.default_stream(accelerator.current_device()).synchronize()


def _set_stream(accelerator: DeepSpeedAccelerator) -> None:
    outer, other = accelerator.current_stream(), accelerator.Stream()
    accelerator.set_stream(other)
    found = accelerator.current_stream()
    accelerator.set_stream(outer)
    expect(found == other, "after set_stream(s), current_stream() is not s")


def _record_stream(accelerator: DeepSpeedAccelerator) -> None:
    other = accelerator.Stream()
    tensor = torch.ones(8, device=accelerator.current_device_name())
    with accelerator.stream(other):
        doubled = tensor * 2
    accelerator.record_stream(tensor, other)
    del tensor
    accelerator.synchronize()
    expect(
        doubled.sum().item() == 16.0, "a tensor that another stream read, freed after record_stream, was read wrongly"
    )


def _event_class(accelerator: DeepSpeedAccelerator) -> None:
    start, end = accelerator.Event(enable_timing=True), accelerator.Event(enable_timing=True)
    start.record()  # the first one may take long
    accelerator.synchronize()
    before = time.perf_counter()
    start.record()
    began = time.perf_counter()
    while time.perf_counter() < began + 0.002:
        torch.ones(8, device=accelerator.current_device_name()).sum()
        accelerator.synchronize()
    end.record()
    end.synchronize()
    most_ms = (time.perf_counter() - before) * 1000
    elapsed_ms = start.elapsed_time(end)
    expect_type(elapsed_ms, float, "elapsed_time()")
    is_plausible = 0.5 < elapsed_ms < 1.1 * most_ms + 1.0  # the device has a clock of its own
    expect(is_plausible, f"elapsed_time() of 2 ms of work, within {most_ms} ms of this process, is {elapsed_ms} ms")
    expect(end.query() is True, "query() of an event waited for is not True")


def _graph(accelerator: DeepSpeedAccelerator) -> None:
    source = torch.ones(4, device=accelerator.current_device_name())
    target = torch.zeros_like(source)
    accelerator.synchronize()
    graph = accelerator.create_graph()
    with accelerator.capture_to_graph(graph):
        target.copy_(source * 2)
    source.fill_(3.0)
    accelerator.replay_graph(graph)
    accelerator.synchronize()
    expect(target.cpu().tolist() == [6.0] * 4, f"a replayed graph leaves {target.cpu().tolist()}; expected sixes")


def _graph_pool(accelerator: DeepSpeedAccelerator) -> None:
    pool = accelerator.graph_pool_handle()
    source = torch.ones(4, device=accelerator.current_device_name())
    accelerator.synchronize()
    graph = accelerator.create_graph()
    with accelerator.capture_to_graph(graph, pool=pool):
        doubled = source * 2
    accelerator.replay_graph(graph)
    expect(doubled.sum().item() == 8.0, "a graph in a pool of graph_pool_handle() is replayed wrongly")


def _graphed_callables(accelerator: DeepSpeedAccelerator) -> None:
    device = accelerator.current_device_name()
    layer = torch.nn.Linear(4, 4, device="cpu").to(device)
    x = torch.ones(2, 4, device=device)
    with torch.no_grad():  # a graph of autograd that outlives this stream would break the capture
        wanted = layer(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch 2.11: of autograd's threads and streams, which are torch's own there
        graphed = accelerator.make_graphed_callables(layer, (x.clone().requires_grad_(),))
    expect(torch.allclose(graphed(x.requires_grad_()), wanted, atol=1e-5), "a graphed module computes something else")


CHECKS: dict[str, Callable[[DeepSpeedAccelerator], None]] = {
    "Stream": _stream_class,
    "stream": _stream,
    "current_stream": _current_stream,
    "default_stream": _default_stream,
    "set_stream": _set_stream,
    "record_stream": _record_stream,
    "Event": _event_class,
    "create_graph": _graph,
    "capture_to_graph": _graph,
    "replay_graph": _graph,
    "graph_pool_handle": _graph_pool,
    "make_graphed_callables": _graphed_callables,
}
