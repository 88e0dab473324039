"""Runs programs as if this machine had two CUDA devices, on its CPU, and writes down what they ask of them.

    python recorded_cuda.py RECORDS.json RUNS.json

A run is a program's path, its arguments and its environment; a record is its commands, with the devices' names, and its output.

``torch.cuda``'s functions are mocks with the signatures of the real ones. A function mode sees every device that torch's own
functions are given, notes it, and passes the CPU on. Questions (``is_available()``) are answered, not noted.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

from anyaccel import set_accelerator
from anyaccel.accelerator.cuda_accelerator import CUDA_Accelerator

CUDA = torch.cuda
COMMANDS = ("synchronize", "empty_cache", "manual_seed", "manual_seed_all", "reset_peak_memory_stats")
ANSWERS = {"is_available": True, "device_count": 2, "is_bf16_supported": True, "memory_reserved": 0, "memory_allocated": 0,
           "max_memory_allocated": 0, "is_initialized": True, "get_device_capability": (9, 0)}  # fmt: skip
MOVES = ("to", "cuda", "pin_memory", "type")


class Record:
    """What a program has asked of the devices, in order."""

    def __init__(self) -> None:
        self.events: list[list[Any]] = []
        self.current = 0

    def note(self, *event: Any) -> None:
        self.events.append([str(each) for each in event])

    def name(self, device: Any) -> str:
        """Return a device's whole name: ``cuda`` is the current one, and so is a number's absence."""
        if device is None:
            return f"cuda:{self.current}"
        text = f"cuda:{device}" if isinstance(device, int) else str(device)
        return f"cuda:{self.current}" if text == "cuda" else text

    def set_device(self, device: Any) -> None:
        self.current = torch.device(self.name(device)).index
        self.note("set_device", self.current)


def is_device(value: Any) -> bool:
    return isinstance(value, torch.device) or (isinstance(value, str) and value.startswith(("cuda", "cpu")))


class Devices(TorchFunctionMode):
    """Notes the devices that torch's functions are given, and gives them the CPU."""

    def __init__(self, record: Record) -> None:
        super().__init__()
        self.record = record

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name in MOVES and args and isinstance(args[0], torch.Tensor):
            return self.moved(name, func, args, kwargs)
        if is_device(kwargs.get("device")):
            self.record.note("make", self.record.name(kwargs["device"]))
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)

    def moved(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensor, *given = args
        if name == "pin_memory":
            self.record.note("pin")
            return tensor
        if name == "cuda":
            device = given[0] if given else kwargs.get("device")
            self.record.note("move", self.record.name(device), kwargs.get("non_blocking", False))
            return tensor.clone()
        if name == "type" and given and isinstance(given[0], Typed):
            self.record.note("move", self.record.name(None), False)
            return tensor.to(given[0].dtype)
        places = [*given, kwargs.get("device")] if name == "to" else []
        device = next((each for each in places if is_device(each)), None)
        if device is not None:
            self.record.note("move", self.record.name(device), kwargs.get("non_blocking", False))
        given = ["cpu" if is_device(each) else each for each in given]
        kwargs = {key: "cpu" if key == "device" else value for key, value in kwargs.items()}
        return func(tensor, *given, **kwargs)


class Typed:
    """What ``torch.cuda.FloatTensor`` is: makes a tensor of a type on the current device."""

    def __init__(self, record: Record, name: str) -> None:
        self.record, self.make = record, getattr(torch, name)
        self.dtype = self.make().dtype

    def __call__(self, *args: Any) -> torch.Tensor:
        self.record.note("make", self.record.name(None))
        return self.make(*args)


def patched(record: Record) -> list[Any]:
    """Return the patches under which a program runs."""
    patches = [mock.patch.object(CUDA, "set_device", autospec=True, side_effect=record.set_device)]
    patches += [mock.patch.object(CUDA, "current_device", autospec=True, side_effect=lambda: record.current)]
    patches += [mock.patch.object(CUDA, name, autospec=True, return_value=answer) for name, answer in ANSWERS.items()]
    for name in COMMANDS:
        noted = lambda *args, name=name, **kwargs: record.note(name, *args, *kwargs.values())  # noqa: E731
        patches.append(mock.patch.object(CUDA, name, autospec=True, side_effect=noted))
    for name in ("FloatTensor", "LongTensor"):
        patches.append(mock.patch.object(CUDA, name, Typed(record, name)))
    init, load, ddp, adam = (
        dist.init_process_group,
        torch.load,
        torch.nn.parallel.DistributedDataParallel.__init__,
        torch.optim.AdamW.__init__,
    )
    autocast, scaler = torch.amp.autocast.__init__, torch.amp.GradScaler.__init__

    def init_process_group(backend: str, *args: Any, **kwargs: Any) -> None:
        record.note("init_process_group", backend)
        init("gloo", *args, **kwargs)

    def loaded(path: Any, map_location: Any = None, **kwargs: Any) -> Any:
        table = map_location if isinstance(map_location, dict) else {"": map_location}
        record.note("load", *(f"{key}->{record.name(value)}" for key, value in table.items()))
        return load(path, map_location="cpu", **kwargs)

    def ddp_init(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, **kwargs: Any) -> None:
        record.note("DDP", device_ids, output_device)
        ddp(self, module, **kwargs)

    def parallel_init(self: Any, module: Any, device_ids: Any = None, **_: Any) -> None:
        record.note("DataParallel", device_ids)
        torch.nn.Module.__init__(self)
        self.module, self.device_ids = module, []

    def autocast_init(
        self: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        record.note("autocast", device_type, dtype or torch.get_autocast_dtype(device_type), enabled)
        autocast(self, "cpu", dtype, enabled=False, cache_enabled=cache_enabled)

    def scaler_init(self: Any, device: str = "cuda", *_: Any, enabled: bool = True, **__: Any) -> None:
        record.note("GradScaler", device, enabled)
        scaler(self, "cpu", enabled=False)

    def adam_init(self: Any, *args: Any, **kwargs: Any) -> None:
        record.note("AdamW", kwargs.get("fused"))
        adam(self, *args, **kwargs)

    def spawn(fn: Any, args: Any = (), nprocs: int = 1, **_: Any) -> None:
        record.note("spawn", nprocs)
        fn(0, *args)

    patches += [
        mock.patch.object(dist, "init_process_group", init_process_group),
        mock.patch.object(torch, "load", loaded),
        mock.patch.object(torch.nn.parallel.DistributedDataParallel, "__init__", ddp_init),
        mock.patch.object(torch.nn.DataParallel, "__init__", parallel_init),
        mock.patch.object(torch.amp.autocast, "__init__", autocast_init),
        mock.patch.object(torch.amp.GradScaler, "__init__", scaler_init),
        mock.patch.object(torch.optim.AdamW, "__init__", adam_init),
        mock.patch.object(torch.multiprocessing, "spawn", spawn),
        mock.patch.object(torch.accelerator, "current_accelerator", return_value=None),  # torch's optimizers ask it
        mock.patch.object(CUDA, "is_current_stream_capturing", return_value=False),  # torch 2.10's ask this
    ]
    return patches


def recorded(program: str, arguments: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """Run a program, and return what it asked of the devices and what it printed."""
    record, said = Record(), io.StringIO()
    with contextlib.ExitStack() as stack:
        for each in patched(record):
            stack.enter_context(each)
        stack.enter_context(mock.patch.dict(os.environ, environment))
        stack.enter_context(mock.patch.object(sys, "argv", [program, *arguments]))
        stack.enter_context(contextlib.redirect_stdout(said))
        stack.enter_context(Devices(record))
        set_accelerator(CUDA_Accelerator())
        runpy.run_path(program, run_name="__main__")
    return {"events": record.events, "said": said.getvalue()}


def main() -> None:
    out, runs = (Path(each) for each in sys.argv[1:])
    done = [recorded(*run) for run in json.loads(runs.read_text(encoding="utf-8"))]
    out.write_text(json.dumps(done), encoding="utf-8")


if __name__ == "__main__":
    main()
