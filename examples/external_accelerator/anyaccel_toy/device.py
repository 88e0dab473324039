"""The device ``toy`` for PyTorch: the CPU's memory and computation under another name, registered in Python only.

A tensor on it is a ``ToyTensor``, which holds a CPU tensor. Every op reaches ``_run``: through ``__torch_dispatch__`` if an
argument is on the device, otherwise, as for factory functions, through the fallback of torch's PrivateUse1 key.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from .toy import Toy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["ToyTensor", "register"]

_AUTOCAST_OPS = ("addmm", "baddbmm", "bmm", "linear", "matmul", "mm")

_toy = Toy()


class ToyTensor(torch.Tensor):
    """A tensor on a toy device.

    Args:
        host: the CPU tensor that holds the data; a view of a toy tensor holds a view of its CPU tensor.
        index: the device's index.
    """

    host: torch.Tensor

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # as torch recommends

    @staticmethod
    def __new__(cls, host: torch.Tensor, index: int) -> ToyTensor:
        device = torch.device("toy", index)
        tensor = torch.Tensor._make_wrapper_subclass(cls, *_layout(host), dtype=host.dtype, device=device)
        tensor.host = host
        _toy.count(host.untyped_storage(), index)
        return tensor

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return _run(op, args, kwargs or {})

    def _set_data(self, new: Any) -> None:
        with torch._C._DisableTorchDispatch():
            torch.Tensor.data.__set__(self, new)  # type: ignore[attr-defined]
        self.host = new.host.detach()

    data = property(torch.Tensor.data.__get__, _set_data)  # type: ignore[attr-defined]

    def backward(self, *args: Any, **options: Any) -> None:
        """Compute gradients in this thread: for a device registered in Python, torch creates a thread for index 0 only."""
        with torch.autograd.set_multithreading_enabled(False):
            super().backward(*args, **options)  # type: ignore[no-untyped-call]

    def __tensor_flatten__(self) -> tuple[list[str], int]:
        return ["host"], self.device.index

    @staticmethod
    def __tensor_unflatten__(parts: dict[str, torch.Tensor], index: int, *outer: Any) -> ToyTensor:
        return ToyTensor(parts["host"], index)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        copied = (self.detach().cpu(), self.dtype, str(self.device), self.requires_grad)
        return torch._utils._rebuild_device_tensor_from_cpu_tensor, copied

    def __format__(self, spec: str) -> str:
        return format(self.item() if self.dim() == 0 else repr(self), spec)

    def tolist(self) -> Any:
        return self.host.tolist()


def _run(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an op on the CPU tensors of its arguments, and put its results on the device that it names, or that of its inputs."""
    inputs: dict[int, torch.Tensor] = {}

    def to_host(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            host = value.host if isinstance(value, ToyTensor) else value
            inputs.setdefault(id(host), value)
            return host
        return torch.device("cpu") if isinstance(value, torch.device) and value.type == "toy" else value

    host_args, host_kwargs = tree_map(to_host, (args, kwargs))
    toys = [tensor for tensor in inputs.values() if isinstance(tensor, ToyTensor)]
    device = kwargs.get("device") or toys[0].device
    index = _toy.index(device) if device.type == "toy" else 0
    with _random_numbers_of(index) if torch.Tag.nondeterministic_seeded in op.tags else contextlib.nullcontext():
        result = op(*host_args, **host_kwargs)

    for tensor in toys:
        if _layout(tensor.host) != _layout(tensor):  # resize_, t_ and out= change the layout
            tensor.data = ToyTensor(tensor.host, tensor.device.index)

    def to_device(value: Any) -> Any:
        if id(value) in inputs:  # an in-place op, or out=
            return inputs[id(value)]
        return ToyTensor(value, index) if isinstance(value, torch.Tensor) and device.type == "toy" else value

    return tree_map(to_device, result)


def _layout(tensor: torch.Tensor) -> tuple[torch.Size, tuple[int, ...], Any]:
    return tensor.shape, tensor.stride(), tensor.storage_offset()


@contextlib.contextmanager
def _random_numbers_of(index: int) -> Iterator[None]:
    """Make the CPU draw from a toy device's generator."""
    outer_state = torch.get_rng_state()
    torch.set_rng_state(_toy.get_rng_state(index))
    try:
        yield
    finally:
        _toy.set_rng_state(torch.get_rng_state(), index)
        torch.set_rng_state(outer_state)


def _autocasting(op: Any) -> Callable[..., Any]:
    """Return a matrix product that first casts its inputs to autocast's dtype."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)  # type: ignore[attr-defined]

    def cast(value: Any) -> Any:
        floats = (torch.float32, torch.float16, torch.bfloat16)
        is_cast = isinstance(value, torch.Tensor) and value.dtype in floats
        return value.to(torch.get_autocast_dtype("toy")) if is_cast else value

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return op(*map(cast, args), **kwargs)

    return run


def register() -> None:
    """Register ``toy`` as a torch device, once; a process can have only one device on the PrivateUse1 key."""
    if hasattr(torch, "toy"):
        return
    _setup_privateuseone_for_python_backend("toy", backend_module=_toy)
    all_ops, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    _toy.registrations = (all_ops, aten)  # the registrations end with these objects
    all_ops.fallback(lambda op, *args, **kwargs: _run(op, args, kwargs), "PrivateUse1")
    all_ops.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    copy = torch.ops.aten.copy_.default  # torch.tensor copies with _copy_from, and without __torch_dispatch__
    aten.impl("_copy_from", lambda source, target, *options: _run(copy, (target, source), {}), "PrivateUse1")
    for name in _AUTOCAST_OPS:
        aten.impl(name, _autocasting(getattr(torch.ops.aten, name).default), "AutocastPrivateUse1")
