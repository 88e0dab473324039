"""A device that torch knows, but this project does not: host memory as torch's PrivateUse1, shared by DLPack.

It stands for a vendor's package that registers a device with torch, or for torch's own support.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

_HOST, _TOY = 1, 12  # kDLCPU and kDLExtDev, which is torch's PrivateUse1
_DEVICE_TYPE = ctypes.sizeof(ctypes.c_void_p)  # of DLTensor, behind the address of its data
_address = ctypes.pythonapi.PyCapsule_GetPointer
_address.restype, _address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class _Module(_DummyBackendModule):
    """The module that becomes ``torch.toy``."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


def _shared(tensor: torch.Tensor, kind: int) -> torch.Tensor:
    """Return a tensor of the other device in the same memory."""
    capsule = torch.utils.dlpack.to_dlpack(tensor.detach())
    described = _address(capsule, b"dltensor")
    assert described is not None
    ctypes.c_int32.from_address(described + _DEVICE_TYPE).value = kind
    shared: torch.Tensor = torch.utils.dlpack.from_dlpack(capsule)
    return shared


def _on_host(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "toy":
        return torch.device("cpu")
    return _shared(value, _HOST) if isinstance(value, torch.Tensor) and value.device.type == "toy" else value


def _run(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a torch op on the host, and return its results on the device; results that are arguments are returned unchanged."""
    out = kwargs.get("out")
    if isinstance(out, torch.Tensor) and out.numel() == 0:  # torch would resize it, which shared memory does not allow
        host_kwargs = tree_map(_on_host, kwargs) | {"out": torch.empty(0, dtype=out.dtype)}
        out.data = _shared(op(*tree_map(_on_host, args), **host_kwargs), _TOY)
        return out
    given = {
        value.data_ptr(): value
        for value in torch.utils._pytree.tree_leaves((args, kwargs))
        if isinstance(value, torch.Tensor)
    }
    returned = op(*tree_map(_on_host, args), **tree_map(_on_host, kwargs))
    writes = op._schema.is_mutable

    def on_device(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return given[value.data_ptr()] if writes and value.data_ptr() in given else _shared(value, _TOY)

    return tree_map(on_device, returned)


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    _on_host(target).copy_(_on_host(source))
    return target


_setup_privateuseone_for_python_backend("toy", backend_module=_Module())
_libraries = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")  # they end with these objects
_libraries[0].fallback(_run, "PrivateUse1")
_libraries[1].impl("_copy_from", _copy_from, "PrivateUse1")
