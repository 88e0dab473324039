"""Calls functions of deepspeed's op modules with unusual arguments, and saves what happened.

    python op_modules.py SIDE TO

SIDE is ``stock`` (deepspeed's own ops) or ``ours`` (those of the integration); TO is a file. For each call there is what it
returned and the tensors as they were afterwards, or None if it raised an error.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

FLAT = {"grad": (35,), "states": (35,)}
OPTIONS: dict[str, dict[str, Any]] = {
    "as usual": {},
    "options as tensors": {"lr": torch.tensor(1e-2), "step": torch.tensor(1)},
    "options as numpy's": {"lr": np.float32(1e-2), "step": np.int64(1), "flag": np.bool_(True)},
    "options as integers": {"weight_decay": 0, "flag": 1},
    "a fraction as the step": {"step": 1.0},
    "the first step is the fifth": {"step": 5},
    "step 0": {"step": 0},
    "no correction": {"flag": False},
    "a negative decay": {"weight_decay": -0.1},
    "bfloat16": {"dtype": torch.bfloat16, "state_dtype": torch.bfloat16},
    "bfloat16, states in float32": {"dtype": torch.bfloat16},
    "float16": {"dtype": torch.float16, "state_dtype": torch.float16},
    "states in bfloat16 only": {"state_dtype": torch.bfloat16},
    "float64": {"dtype": torch.float64, "state_dtype": torch.float64},
    "no elements": {"shape": (0,)},
    "no dimensions": {"shape": ()},
    "flat gradients and states": FLAT,
    "flat, bfloat16": {**FLAT, "dtype": torch.bfloat16, "state_dtype": torch.bfloat16},
    "a leaf that requires gradients": {"is_leaf": True},
    "memory at an odd place": {"is_shifted": True},
    "nothing to follow": {"is_zero": True},
}
"""The cases; each is tried with every function."""


def main(side: str, to: str) -> None:
    if side == "ours":
        import anyaccel.integrations.deepspeed  # noqa: F401
    from deepspeed.accelerator import get_accelerator

    adam, lion, adagrad, fused, pin = (
        get_accelerator().create_op_builder(f"{name}Builder").load()
        for name in ("CPUAdam", "CPULion", "CPUAdagrad", "FusedAdam", "PinMemory")
    )
    for number, is_decoupled in enumerate((True, False)):
        adam.create_adam(number, 1e-2, 0.9, 0.999, 1e-8, 0.1, is_decoupled, False)
    lion.create_lion(0, 1e-2, 0.9, 0.99, 0.1, False)
    adagrad.create_adagrad(0, 1e-2, 1e-8, 0.1, False)
    no_skip, skip = torch.zeros(1, dtype=torch.int32), torch.ones(1, dtype=torch.int32)

    def many(noop: torch.Tensor, mode: int, kind: type) -> Callable[..., Any]:
        return lambda step, lr, decay, flag, p, g, m, v: fused.multi_tensor_adam(
            65536, noop, kind(kind([tensor]) for tensor in (g, p, m, v)), lr, 0.9, 0.999, 1e-8, step, mode, flag, decay
        )

    def single(function: str, number: int) -> Callable[..., Any]:
        return lambda step, lr, decay, flag, *tensors: getattr(adam, function)(
            number, step, lr, 0.9, 0.999, 1e-8, decay, flag, *tensors
        )

    functions: dict[str, Callable[..., Any]] = {
        "adam_update": single("adam_update", 0),
        "adam_update, L2": single("adam_update", 1),
        "adam_rollback": single("adam_rollback", 0),
        "lion_update": lambda step, lr, decay, flag, p, g, m, v: lion.lion_update(
            0, step, lr, 0.9, 0.99, decay, p, g, m
        ),
        "adagrad_update": lambda step, lr, decay, flag, p, g, m, v: adagrad.adagrad_update(
            0, step, lr, 1e-8, decay, p, g, v
        ),
        "multi_tensor_adam": many(no_skip, 1, list),
        "multi_tensor_adam, L2, tuples": many(no_skip, 0, tuple),
        "multi_tensor_adam, told to skip": many(skip, 1, list),
    }
    outcomes = {
        f"{name}: {case}": _call(function, **options)
        for name, function in functions.items()
        for case, options in OPTIONS.items()
    }
    outcomes |= {f"pin_memory: {case}": call() for case, call in _pins(pin).items()}
    outcomes["destroy_adam, twice"] = [adam.destroy_adam(1), adam.destroy_adam(1)]
    torch.save(outcomes, to)


def _call(
    function: Callable[..., Any], *, step: Any = 1, lr: Any = 1e-2, weight_decay: Any = 0.1, flag: Any = True,
    dtype: torch.dtype = torch.float32, state_dtype: torch.dtype = torch.float32, shape: tuple[int, ...] = (7, 5),
    grad: tuple[int, ...] | None = None, states: tuple[int, ...] | None = None, is_leaf: bool = False,
    is_shifted: bool = False, is_zero: bool = False,
) -> Any:  # fmt: skip
    size = torch.Size(shape).numel()
    values = [torch.randn(size + 1, generator=torch.Generator().manual_seed(seed)) for seed in range(4)]
    for value in values[1:] if is_zero else []:
        value.zero_()
    dtypes = dtype, dtype, state_dtype, state_dtype
    shapes = shape, grad or shape, states or shape, states or shape
    first = 1 if is_shifted else 0
    tensors = [
        value.to(kind)[first : size + first].view(wanted)
        for value, kind, wanted in zip([*values[:3], values[3].abs()], dtypes, shapes, strict=True)
    ]
    tensors = [torch.nn.Parameter(tensors[0]) if is_leaf else tensors[0], *tensors[1:]]
    try:
        returned = function(step, lr, weight_decay, flag, *tensors)
    except Exception:
        return None
    # deepspeed's Adagrad leaves intermediate results in the gradients, depending on the size and the processor
    return returned, [tensor.detach().flatten().double() for tensor in (tensors[0], *tensors[2:])]


def _pins(module: Any) -> dict[str, Callable[[], Any]]:
    handle = module.pin_handle()
    tensor = handle.new_cpu_locked_tensor(num_elem=10, example_tensor=torch.ones(2, 3, dtype=torch.int16))
    other = handle.new_cpu_locked_tensor(np.int64(5), torch.nn.Parameter(torch.ones(1)))
    return {
        "its tensors": lambda: [
            (one.dtype, one.shape, one.requires_grad, one.is_contiguous(), one.device.type) for one in (tensor, other)
        ],
        "the class": lambda: isinstance(handle, module.pin_handle),
        "what is pinned": lambda: [
            handle.is_pinned(buffer=one)
            for one in (tensor, tensor[2:5], tensor[3:3], tensor[::2], other, torch.ones(3), torch.ones(0))
        ],
        "another handle": lambda: module.pin_handle().is_pinned(tensor),
        "what is freed": lambda: [handle.free_cpu_locked_tensor(one) for one in (tensor[1:], torch.ones(3))],
        "by its address": lambda: [
            handle.free_cpu_locked_tensor_by_ptr(address=address)
            for address in (tensor.data_ptr(), tensor.data_ptr(), other.data_ptr())
        ],
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
