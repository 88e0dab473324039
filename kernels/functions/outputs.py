"""Writes results to tensors given by the caller."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = [
    "in_float32",
    "in_shapes_of",
    "is_same_place",
    "may_share_memory",
    "problem_of_writing",
    "require_apart",
    "require_like",
    "require_one_place_each",
    "require_shape",
    "require_writable",
    "shaped_like",
    "write_output",
    "write_outputs",
]


def write_output(function: str, output: torch.Tensor, result: torch.Tensor) -> None:
    """Write a result to a given tensor of the same shape, dtype and device; ``copy_`` would broadcast, convert or transfer.

    Raises:
        RuntimeError: when shape, dtype or device differ, its elements share memory, or autograd forbids to write it.
    """
    write_outputs(function, (output, result))


def write_outputs(function: str, *pairs: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Write results to given tensors; see :func:`write_output`. When one is refused, none is written.

    Raises:
        RuntimeError: as for one, and when two of them begin in the same place, or are contiguous and share memory.
    """
    for output, result in pairs:
        require_like(function, output, result)
    require_apart(function, [output for output, _ in pairs])
    for output, result in pairs:
        output.copy_(result)


def require_apart(function: str, outputs: Sequence[torch.Tensor]) -> None:
    """Check that no two written tensors begin in the same place, or are contiguous and share memory; other views are not checked.

    Raises:
        RuntimeError: when two do.
    """
    if len(outputs) < 2 or not _have_memory(outputs):
        return
    ends: dict[torch.device, int] = {}
    for output in sorted(outputs, key=torch.Tensor.data_ptr):
        begin = output.data_ptr()
        if output.numel() and begin < ends.get(output.device, 0):
            msg = (
                f"{function} failed: got two outputs that share memory; expected separate memory for each result. "
                f"Fix: pass torch.empty_like(output) for one of them."
            )
            raise RuntimeError(msg)
        if output.numel():
            ends[output.device] = begin + (output.nbytes if output.is_contiguous() else 1)


def is_same_place(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors begin in the same place; not of those whose memory cannot be looked at."""
    return _have_memory([one, other]) and one.data_ptr() == other.data_ptr()


def _have_memory(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether their memory can be looked at: not while a call is traced, and not of meta or transformed tensors."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    return all(type(one) in (torch.Tensor, torch.nn.Parameter) and one.device.type != "meta" for one in tensors)


def require_like(function: str, output: torch.Tensor, result: torch.Tensor) -> None:
    """Check that a result can be written to a tensor; see :func:`write_output`."""
    if (output.shape, output.dtype, output.layout) != (result.shape, result.dtype, result.layout):
        msg = (
            f"{function} failed: got a {output.dtype} output of shape {tuple(output.shape)}; expected {result.dtype} of shape "
            f"{tuple(result.shape)}. Fix: create it with torch.empty({tuple(result.shape)}, dtype={result.dtype})."
        )
        raise RuntimeError(msg)
    require_writable(function, output, result)


def require_writable(function: str, output: torch.Tensor, beside: torch.Tensor) -> None:
    """Check that torch's operators can write to a tensor, before one of several is written.

    Args:
        function: the function that was called, for the message.
        output: the tensor to write.
        beside: a tensor on the device where the result is computed.

    Raises:
        RuntimeError: when the device differs, elements share memory, or autograd forbids to write it.
    """
    require_one_place_each(function, output)
    problem = problem_of_writing(output)
    if output.device != beside.device:
        problem = f"on {output.device}, beside tensors on {beside.device}"
    elif output.layout is not torch.strided:
        problem = f"of the layout {output.layout}"
    if problem:
        msg = (
            f"{function} failed: got an output that is {problem}; expected one that may be written. "
            f"Fix: pass torch.empty_like(output, device='{beside.device}', requires_grad=False), or call it in torch.no_grad()."
        )
        raise RuntimeError(msg)


def problem_of_writing(x: torch.Tensor) -> str:
    """Return why autograd would refuse a tensor that has been written in place, or an empty string."""
    if torch.compiler.is_compiling():
        return ""
    if x.is_inference():
        return "" if torch.is_inference_mode_enabled() else "an inference tensor outside of inference mode"
    base = x if x._base is None else x._base
    if not (torch.is_grad_enabled() and base.requires_grad):
        return ""
    if base.is_leaf:
        return "a leaf that requires a gradient, or a view of one"
    is_plain = base is x or torch._C._autograd._get_creation_meta(x) == torch._C._autograd.CreationMeta.DEFAULT
    return "" if is_plain else "one of several views, or a view that was made without a gradient"


def require_one_place_each(function: str, output: torch.Tensor) -> None:
    """Check that the elements of a written tensor do not overlap.

    Raises:
        RuntimeError: when this cannot be proven.
    """
    if output.layout is torch.strided and may_share_memory(output):
        msg = (
            f"{function} failed: got an output of strides {output.stride()}, whose elements share memory; expected "
            f"separate memory for each. Fix: pass output.clone(), and read the result there."
        )
        raise RuntimeError(msg)


def may_share_memory(tensor: torch.Tensor) -> bool:
    """Return whether elements may share memory: in order of the strides, each must exceed all that the smaller ones reach."""
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)) if tensor.numel() else ():
        if size > 1 and stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def require_shape(function: str, copy: torch.Tensor, of: torch.Tensor) -> None:
    """Check that a tensor that receives a copy is empty, or has the other's shape; ``copy_`` would broadcast."""
    if copy.numel() > 0 and copy.shape != of.shape:
        msg = (
            f"{function} failed: got a copy of shape {tuple(copy.shape)}; expected {tuple(of.shape)}, or none. "
            f"Fix: pass torch.empty_like(param), or torch.empty(0)."
        )
        raise RuntimeError(msg)


@contextlib.contextmanager
def in_float32(*lists: Sequence[torch.Tensor]) -> Iterator[list[list[torch.Tensor]]]:
    """Yield lists of states in float32, as the kernels need them; some programs keep them in the parameters' dtype.

    Other states are copied, and rounded back after a successful step.

    Raises:
        RuntimeError: when a state has another kind of dtype, or its elements share memory.
    """
    for state in (state for states in lists for state in states if state.dtype != torch.float32):
        if not state.is_floating_point() or state.element_size() == 1:
            msg = (
                f"the step failed: got a state of {state.dtype}; expected torch.float32, or the parameter's dtype. "
                f"Fix: pass torch.zeros_like(param, dtype=torch.float32)."
            )
            raise RuntimeError(msg)
        require_one_place_each("the step", state)
    given = [[state if state.dtype == torch.float32 else state.float() for state in states] for states in lists]
    yield given
    with torch.no_grad():  # kernels write a state that requires gradients, too
        for states, computed in zip(lists, given, strict=True):
            for state, result in zip(states, computed, strict=True):
                if state is not result:
                    state.copy_(result)


def in_shapes_of(
    call: Callable[..., Any], params: Sequence[torch.Tensor], /, *lists: Sequence[torch.Tensor], **options: Any
) -> Any:
    """Call a step of an optimizer, with gradients and states of the parameters' sizes in any contiguous shapes.

    deepspeed's kernels and Colossal-AI's ask for equal numbers of elements only. Those here refuse other shapes before they
    write anything, so only a refused call costs more.
    """
    try:
        return call(params, *lists, **options)
    except RuntimeError:
        if any(len(tensors) != len(params) for tensors in lists):
            raise
        shaped = [shaped_like(params, tensors) for tensors in lists]
        pairs = zip(shaped, lists, strict=True)
        if all(one is other for new, old in pairs for one, other in zip(new, old, strict=True)):
            raise
    return call(params, *shaped, **options)


def shaped_like(params: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors in the parameters' shapes, as views; those that cannot have them are returned as they are."""
    return [_in_shape_of(*pair) for pair in zip(params, tensors, strict=True)]


def _in_shape_of(param: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    fits = tensor.shape != param.shape and tensor.numel() == param.numel()
    return tensor.view(param.shape) if fits and tensor.is_contiguous() and param.is_contiguous() else tensor
