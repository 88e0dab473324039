"""deepspeed 0.19.8's nine functions for ZenFlow's Adam: a separate process takes the steps, driven through shared memory.

The memory block has deepspeed's layout, so either side may be deepspeed's own. Semaphores are the C library's.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import itertools
import multiprocessing
import os
import time
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from .outputs import in_shapes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ZenFlowAdam"]

_MAX_GROUPS = 1024
_PER_GROUP = 5  # lr, beta1, beta2, eps, weight_decay
_STEP, _EXIT = 0, 1
_LOOK_NS = 1_000_000_000
"""How often a process that waits for steps checks that the submitting process is still alive."""


class _Control(ctypes.Structure):
    _fields_: ClassVar = [
        ("cmd_ready", ctypes.c_long * 4),  # a sem_t
        ("done", ctypes.c_long * 4),
        ("cmd", ctypes.c_int),
        ("now_state", ctypes.c_int),
        ("step", ctypes.c_int64),
        ("num_groups", ctypes.c_int),
        ("options", ctypes.c_float * (_MAX_GROUPS * _PER_GROUP)),
        ("bias_correction", ctypes.c_uint8 * _MAX_GROUPS),
    ]


class _TimeSpec(ctypes.Structure):
    _fields_: ClassVar = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class _Optimizer:
    def __init__(self, number: int, cores: list[int]) -> None:
        self.number, self.cores = number, cores
        self.groups: list[tuple[Any, ...]] = []


class ZenFlowAdam:
    """ZenFlow's functions, using ``adam_step`` and ``create_adam`` of the class that inherits them."""

    if TYPE_CHECKING:
        _decoupled: dict[int, bool]

        def adam_step(self, *arguments: Any, **options: Any) -> None: ...

    _optimizers: ClassVar[dict[int, _Optimizer]] = {}
    _handles: ClassVar = itertools.count()

    def zenflow_adam_create(self, optimizer_id: int, zf_affinity: Sequence[int]) -> int:
        """Create an optimizer whose steps run on given cores, and return its handle.

        Args:
            optimizer_id: an optimizer from ``create_adam``.
            zf_affinity: the cores; an empty list leaves the process where it is.

        Raises:
            KeyError: when the optimizer does not exist.
        """
        if optimizer_id not in self._decoupled:
            msg = (
                f"zenflow_adam_create failed: got optimizer {optimizer_id}; expected one of {sorted(self._decoupled)}. "
                f"Fix: call create_adam({optimizer_id}, …) first."
            )
            raise KeyError(msg)
        handle: int = next(self._handles)
        self._optimizers[handle] = _Optimizer(optimizer_id, list(zf_affinity))
        return handle

    def zenflow_adam_register_group(
        self, handle: int, param: torch.Tensor, grad0: torch.Tensor, grad1: torch.Tensor, exp_avg0: torch.Tensor,
        exp_avg1: torch.Tensor, exp_avg_sq0: torch.Tensor, exp_avg_sq1: torch.Tensor, stale: torch.Tensor | None,
    ) -> None:  # fmt: skip
        """Add a parameter, with gradients and moments for both states of the double buffer.

        Args:
            handle: from :meth:`zenflow_adam_create`.
            param: the parameter, in shared memory.
            grad0: its gradient in state 0.
            grad1: its gradient in state 1.
            exp_avg0: the first moment in state 0.
            exp_avg1: the first moment in state 1.
            exp_avg_sq0: the second moment in state 0.
            exp_avg_sq1: the second moment in state 1.
            stale: like the parameter; receives a copy of it after each step, or None.

        Raises:
            ValueError: when a tensor has another number of elements than the parameter, or stale has another shape.
        """
        found = self._of("zenflow_adam_register_group", handle)
        states = (grad0, grad1, exp_avg0, exp_avg1, exp_avg_sq0, exp_avg_sq1)
        sizes = [state.numel() for state in states]
        if set(sizes) != {param.numel()} or (stale is not None and stale.shape != param.shape):
            msg = (
                f"zenflow_adam_register_group failed: got a parameter of shape {tuple(param.shape)}, gradients and moments of "
                f"{sizes} elements and {'no stale copy' if stale is None else f'a stale copy of {tuple(stale.shape)}'}; expected "
                f"{param.numel()} elements in each, and a copy like the parameter. Fix: pass the tensors of one parameter."
            )
            raise ValueError(msg)
        found.groups.append((param, *states, stale))

    def zenflow_adam_destroy(self, handle: int) -> None:
        """Destroy an optimizer."""
        self._optimizers.pop(handle, None)

    def zenflow_adam_ctrl_size(self) -> int:
        """Return the size of the block in bytes."""
        return ctypes.sizeof(_Control)

    def zenflow_adam_ctrl_init(self, control_ptr: int, num_groups: int) -> None:
        """Initialise the block, before the other process starts.

        Args:
            control_ptr: the address of :meth:`zenflow_adam_ctrl_size` bytes of shared memory.
            num_groups: the number of parameters per step, up to 1024.

        Raises:
            ValueError: when ``num_groups`` is larger.
        """
        _require_groups("zenflow_adam_ctrl_init", num_groups)
        control = _Control.from_address(control_ptr)
        control.num_groups, control.cmd = num_groups, _STEP
        for semaphore in ("cmd_ready", "done"):
            _checked("sem_init", _semaphore(control_ptr, semaphore), 1, 0)

    def zenflow_adam_run_worker(self, handle: int, control_ptr: int) -> None:
        """Take the steps that the block requests; return when it requests an exit or the parent process is gone; failures raise.

        Args:
            handle: from :meth:`zenflow_adam_create`.
            control_ptr: the address of the block.
        """
        found, control = self._of("zenflow_adam_run_worker", handle), _Control.from_address(control_ptr)
        if found.cores:
            os.sched_setaffinity(0, found.cores)  # threads that this one starts inherit the cores
            torch.set_num_threads(len(found.cores))
        parent, number = multiprocessing.parent_process(), os.getppid()
        while True:
            while not _waited_until(control_ptr, "cmd_ready", time.time_ns() + _LOOK_NS):
                # The number alone is not enough: the parent may have exited before this function was called.
                if os.getppid() != number or (parent is not None and not parent.is_alive()):
                    return
            if control.cmd == _EXIT:
                return
            for group in range(control.num_groups):
                self._step(found, control, group)
            _checked("sem_post", _semaphore(control_ptr, "done"))

    def zenflow_adam_submit(
        self, control_ptr: int, now_state: int, step: int, lr: Sequence[float], beta1: Sequence[float],
        beta2: Sequence[float], eps: Sequence[float], weight_decay: Sequence[float], bias_correction: Sequence[int],
    ) -> None:  # fmt: skip
        """Request a step from the other process.

        Args:
            control_ptr: the address of the block.
            now_state: the state of the double buffers to use, 0 or 1.
            step: the number of the step, from 1.
            lr: the learning rate of each parameter.
            beta1: the decay of each first moment.
            beta2: the decay of each second moment.
            eps: added to the root of each second moment.
            weight_decay: the decay of each parameter.
            bias_correction: for each parameter, whether the moments are corrected.

        Raises:
            ValueError: when there are more than 1024 parameters, or the lists differ in length.
        """
        _require_groups("zenflow_adam_submit", len(lr))
        control = _Control.from_address(control_ptr)
        for group, options in enumerate(zip(lr, beta1, beta2, eps, weight_decay, strict=True)):
            control.options[group * _PER_GROUP : (group + 1) * _PER_GROUP] = options
        control.bias_correction[: len(bias_correction)] = [int(bool(one)) for one in bias_correction]
        control.now_state, control.step, control.cmd = now_state, step, _STEP
        _checked("sem_post", _semaphore(control_ptr, "cmd_ready"))

    def zenflow_adam_wait(self, control_ptr: int, timeout_s: float) -> bool:
        """Wait until a step ends; return False on timeout, so that the caller can check whether the other process is alive."""
        return _waited_until(control_ptr, "done", time.time_ns() + int(timeout_s * 1e9))

    def zenflow_adam_ctrl_exit(self, control_ptr: int) -> None:
        """Request that the other process returns from :meth:`zenflow_adam_run_worker`."""
        _Control.from_address(control_ptr).cmd = _EXIT
        _checked("sem_post", _semaphore(control_ptr, "cmd_ready"))

    def _of(self, function: str, handle: int) -> _Optimizer:
        if handle not in self._optimizers:
            msg = (
                f"{function} failed: got handle {handle}; expected one of {sorted(self._optimizers)}. "
                f"Fix: call zenflow_adam_create first."
            )
            raise KeyError(msg)
        return self._optimizers[handle]

    def _step(self, optimizer: _Optimizer, control: _Control, group: int) -> None:
        lr, beta1, beta2, eps, weight_decay = control.options[group * _PER_GROUP : (group + 1) * _PER_GROUP]
        param, *grads_and_moments, stale = optimizer.groups[group]
        grad, exp_avg, exp_avg_sq = grads_and_moments[control.now_state :: 2]
        taken = [torch.tensor(float(control.step - 1), dtype=torch.float32, device="cpu")]
        in_shapes_of(
            lambda *lists, **options: self.adam_step(*lists, taken, **options),
            [param], [grad], [exp_avg], [exp_avg_sq], lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay,
            adamw_mode=self._decoupled[optimizer.number], bias_correction=bool(control.bias_correction[group]),
        )  # fmt: skip
        if stale is not None and param is not None:
            stale.copy_(param)


def _require_groups(function: str, groups: int) -> None:
    if groups > _MAX_GROUPS:
        msg = f"{function} failed: got {groups} groups; expected up to {_MAX_GROUPS}. Fix: pass the parameters in fewer groups."
        raise ValueError(msg)


def _semaphore(control_ptr: int, name: str) -> ctypes.c_void_p:
    return ctypes.c_void_p(control_ptr + getattr(_Control, name).offset)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(function: str, *arguments: Any) -> int:
    """Call a C library function, and return its error number, or 0."""
    if getattr(_libc(), function)(*arguments) == 0:
        return 0
    return ctypes.get_errno()


def _checked(function: str, *arguments: Any) -> None:
    number = _call(function, *arguments)
    if number:
        raise OSError(number, f"{function} failed: {os.strerror(number)}")


def _waited_until(control_ptr: int, semaphore: str, nanoseconds: int) -> bool:
    """Wait for a semaphore until a time since the epoch; return False on timeout. Signal handlers run meanwhile."""
    deadline = ctypes.byref(_TimeSpec(*divmod(nanoseconds, 1_000_000_000)))
    while True:
        number = _call("sem_timedwait", _semaphore(control_ptr, semaphore), deadline)
        if number not in (0, errno.EINTR, errno.ETIMEDOUT):
            raise OSError(number, f"sem_timedwait failed: {os.strerror(number)}")
        if number != errno.EINTR:
            return number == 0
