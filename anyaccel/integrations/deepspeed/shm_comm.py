"""deepspeed's two modules for communication between CPUs, on the backend ``shm``.

One is the all-reduce for tensor-parallel inference between ranks of one host. deepspeed builds and opens its own when a program
initialises ``deepspeed.comm`` on a CPU. This one builds nothing until the first tensor is reduced, and sums across hosts as
well. The other has the collectives of ``deepspeed.comm.ccl``, and does not need Intel's oneCCL.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist

from ...distributed import BACKEND_NAME, environment, shm
from ...op_builder.cpu.shm_comm import ShmCommBuilder
from ...op_builder.deepspeed.ccl_comm import CCLCommModule
from .served import note

__all__ = ["CCLCommBuilder", "ShareMemCommBuilder"]

_EVERY_FLOAT = 2
"""deepspeed's level for a CPU whose kernels sum float32, float16 and bfloat16; the backend has no lower one."""


class _CommBuilder(ShmCommBuilder):
    """Gives deepspeed a module whose functions run on the backend."""

    def __init__(self) -> None:
        super().__init__(ShmCommBuilder.NAME)

    def absolute_name(self) -> str:
        """Return the name that deepspeed prints when it has loaded the op; no module is installed by it."""
        return f"{__package__}.{self.NAME}"

    def load(self, verbose: bool = False) -> Any:  # noqa: ARG002  # the builders' signature
        note(type(self))
        return _module_of(self.NAME)

    def jit_load(self, verbose: bool = True) -> Any:
        return self.load(verbose)


class ShareMemCommBuilder(_CommBuilder):
    """Gives deepspeed the module ``deepspeed_shm_comm`` and its torch ops."""

    NAME = "deepspeed_shm_comm"


class CCLCommBuilder(_CommBuilder):
    """Gives deepspeed the module ``deepspeed_ccl_comm``."""

    NAME = "deepspeed_ccl_comm"


@functools.cache
def _module_of(name: str) -> Any:
    """Return the process's module: what it is connected to belongs to the process, as with deepspeed's."""
    if name == ShareMemCommBuilder.NAME:
        return SharedMemory()
    return CCLCommModule(shm.create_or_gloo, environment.main_host())


class SharedMemory:
    """The functions of deepspeed's module."""

    def initialize(self, size: int, rank: int) -> None:  # noqa: ARG002  # deepspeed's signature
        """Define ``torch.ops.deepspeed.inference_all_reduce`` and its in-place variant; ``size`` and ``rank`` are torch's."""
        if _LIBRARY is None:
            _define()

    def vector_kernel_level(self) -> int:
        """Return deepspeed's number for the dtypes that the CPU's kernels can sum."""
        return _EVERY_FLOAT


_LIBRARY: torch.library.Library | None = None
_group: tuple[Any, Any] = (None, None)


def _define() -> None:
    global _LIBRARY
    _LIBRARY = torch.library.Library("deepspeed", "FRAGMENT")
    _LIBRARY.define("inference_all_reduce(Tensor self) -> Tensor")
    _LIBRARY.define("inference_all_reduce_(Tensor(a!) self) -> Tensor(a!)")
    _LIBRARY.impl("inference_all_reduce", lambda tensor: _all_reduce(tensor.clone()), "CPU")
    _LIBRARY.impl("inference_all_reduce_", _all_reduce, "CPU")
    _LIBRARY.impl("inference_all_reduce", torch.empty_like, "Meta")
    _LIBRARY.impl("inference_all_reduce_", lambda tensor: tensor, "Meta")
    torch.ops.deepspeed.inference_all_reduce_.default.py_functionalize_impl(_functional)


def _all_reduce(tensor: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(tensor, group=_ranks())
    return tensor


def _ranks() -> Any:
    """Return a group of all ranks on the backend; the first reduction creates it, and all ranks take part in it."""
    global _group
    world, group = _group
    if world is not dist.group.WORLD:
        world = dist.group.WORLD
        group = world if dist.get_backend() == BACKEND_NAME else dist.new_group(backend=BACKEND_NAME)
        _group = world, group
    return group


def _functional(context: Any, tensor: Any) -> Any:
    """Trace the in-place variant for torch.compile: the other variant, and then a copy into the tensor."""
    with context.redispatch_to_next():
        reduced = torch.ops.deepspeed.inference_all_reduce(context.unwrap_tensors(tensor))
    context.replace(tensor, reduced)
    context.commit_update(tensor)
    context.sync(tensor)
    return tensor
