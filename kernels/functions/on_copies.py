"""Runs ops that write into lists of tensors on copies, where a device on torch's PrivateUse1 key has no kernel for them.

Such a device often runs what it lacks with ``at::native::cpu_fallback``. With a kernel of torch's stable ABI, that drops what is
written into a list of tensors, without an error: torch 2.13 moves the tensors out of the list that the fallback reads afterwards.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

__all__ = ["register_on_copies"]

_KEY = "PrivateUse1"


def register_on_copies(library: torch.library.Library, op: Any) -> None:
    """Register a kernel on PrivateUse1 for an op that writes into a list of tensors, unless the vendor has.

    Args:
        library: keeps the registration.
        op: an overload of a torch op with a kernel for the CPU.
    """
    writes_list = any(
        _is_written(argument) and isinstance(argument.type, torch.ListType) for argument in op._schema.arguments
    )
    if writes_list and not torch._C._dispatch_has_kernel_for_dispatch_key(op._schema.name, _KEY):
        library.impl(op._schema.name.split("::")[1], functools.partial(_run_on_copies, op), _KEY)


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _run_on_copies(op: Any, *arguments: Any, **options: Any) -> Any:
    described = op._schema.arguments
    given = {**dict(zip((one.name for one in described), arguments, strict=False)), **options}
    device = next(leaf.device for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor) and not leaf.is_cpu)
    copies = tree_map_only(torch.Tensor, torch.Tensor.cpu, given)
    results = op(**copies)
    for one in filter(_is_written, described):
        for tensor, copied in zip(tree_leaves(given[one.name]), tree_leaves(copies[one.name]), strict=True):
            if tensor is not copied:  # which was on the CPU, or is None
                tensor.copy_(copied)
    return tree_map_only(torch.Tensor, lambda result: result.to(device), results)
