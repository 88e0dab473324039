"""What builders return is bound to a process: it refuses copies, forks and late calls with an error that says so."""

from __future__ import annotations

import copy
import pickle
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch

from anyaccel import get_accelerator
from anyaccel.op_builder.deepspeed.ccl_comm import CCLCommError, CCLCommModule
from anyaccel.op_builder.deepspeed.host_memory import MemoryLockError
from anyaccel.op_builder.deepspeed.transfers import AsyncIOError, error_of
from anyaccel.ops import DeviceKernel

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    Run = Callable[..., subprocess.CompletedProcess[str]]


def load(builder: str) -> Any:
    return get_accelerator().create_op_builder(builder).load()


COPY, DEEPCOPY, PICKLE = copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))
BOUND: dict[str, Callable[[], Any]] = {
    "an op": lambda: load("CPUAdamBuilder"),
    "the module of files": lambda: load("AsyncIOBuilder"),
    "a handle of files": lambda: load("AsyncIOBuilder").aio_handle(),
    "the module of collectives": lambda: CCLCommModule(lambda *_: None, ""),
}
HOLDING = ("FusedAdamBuilder", "CPUAdagradBuilder", "CPULionBuilder", "FusedLambBuilder", "InferenceCoreBuilder")


@pytest.mark.parametrize("way", [COPY, DEEPCOPY, PICKLE], ids=["copy", "deepcopy", "pickle"])
@pytest.mark.parametrize("what", BOUND)
def test_a_copy_is_refused(what: str, way: Callable[[Any], Any]) -> None:
    one = BOUND[what]()
    with pytest.raises(TypeError, match=f"^copying or pickling {type(one).__name__} failed: .* Fix: "):
        way(one)


@pytest.mark.parametrize("builder", HOLDING)
def test_a_module_that_holds_an_op_is_refused_too(builder: str) -> None:
    for way in (DEEPCOPY, PICKLE):
        with pytest.raises(TypeError, match=r"^copying or pickling \w+Functions failed"):
            way(load(builder))


def test_a_handle_of_locked_memory_is_copied_and_shares_the_memory() -> None:
    handle = load("PinMemoryBuilder").pin_handle()
    locked = handle.new_cpu_locked_tensor(3, torch.empty(0))
    for way in (COPY, DEEPCOPY, PICKLE):
        assert way(handle).is_pinned(locked)
    assert PICKLE(handle).free_cpu_locked_tensor(locked)
    assert not handle.is_pinned(locked)


def test_a_kernel_of_ones_own_is_copied_and_runs() -> None:
    source = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
    kernel = DeviceKernel(source, "twice", args=("tensor",))
    x = torch.arange(4.0)
    kernel(x, grid=1, block=4)
    for way in (DEEPCOPY, PICKLE):
        way(kernel)(x, grid=1, block=4)
    assert x.tolist() == [0, 8, 16, 24]


@pytest.mark.parametrize(
    "error",
    [
        error_of(28, "/a/file", False, 4096, 8192, 4096),
        error_of(0, "descriptor 3", True, 1, 2, 0, "another text"),
        MemoryLockError(12, "mlock failed"),
        CCLCommError("all_reduce failed"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_passes_from_process_to_process(error: Exception) -> None:
    for way in (COPY, DEEPCOPY, PICKLE):
        got = way(error)
        assert type(got) is type(error)
        assert str(got) == str(error)
        if isinstance(error, AsyncIOError):
            assert vars(got) == vars(error)
            assert (got.errno, got.filename) == (error.errno, error.filename)


def test_a_forked_child_has_no_locked_memory(run_python: Run) -> None:
    said = run_python("""
import os, threading, torch
from anyaccel.op_builder.deepspeed import host_memory
handle = host_memory.PinMemoryModule().pin_handle()
locked = handle.new_cpu_locked_tensor(1000, torch.empty(0))

def kept_by_the_system():
    return [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmLck")]

entered, leave = threading.Event(), threading.Event()
def hold():  # as a thread that locks memory does while another one forks
    with host_memory._locked._guard:
        entered.set()
        leave.wait()
threading.Thread(target=hold).start()
entered.wait()
if os.fork() == 0:
    print("child", handle.is_pinned(locked), handle.free_cpu_locked_tensor(locked), *kept_by_the_system(), flush=True)
    print("new", handle.is_pinned(handle.new_cpu_locked_tensor(3, locked)), flush=True)
    os._exit(0)
os.wait()
leave.set()
print("parent", handle.is_pinned(locked))
""").stdout
    assert said.splitlines() == ["child False False 0", "new True", "parent True"]


def test_a_handle_that_python_has_closed_says_so(run_python: Run) -> None:
    said = run_python("""
import atexit

@atexit.register  # before torch registers its own, so it runs after them
def late():
    for call in (handle.wait, lambda: handle.async_pwrite(torch.ones(3), "file")):
        try:
            call()
        except RuntimeError as error:
            print(error, flush=True)

import torch
from anyaccel import get_accelerator
handle = get_accelerator().create_op_builder("AsyncIOBuilder").load().aio_handle()
""").stdout
    assert len(re.findall("^using an aio_handle failed: Python has closed it", said, re.MULTILINE)) == 2
