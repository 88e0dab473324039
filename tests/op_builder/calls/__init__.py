"""A valid call of each function whose tensors have shapes that must fit each other."""

from __future__ import annotations

from dataclasses import replace

from .call import ShapedCall
from .of_colossalai import COLOSSAL
from .of_deepspeed import OTHERS
from .of_ops import OPS
from .of_ragged import RAGGED
from .of_transformers import CORE, TRANSFORMER

__all__ = ["CALLS", "NOT_CALLED"]


def _of(op: str, calls: list[ShapedCall]) -> list[ShapedCall]:
    return [replace(call, function=f"{op}.{call.function}") for call in calls]


CALLS = [
    *OPS,
    *_of("transformer_inference", TRANSFORMER),
    *_of("inference_core_ops", CORE),
    *_of("ragged_device_ops", RAGGED),
    *OTHERS,
    *_of("colossalai", COLOSSAL),
]

NOT_CALLED = {
    "ragged_ops.allocate_view_like": "its tensors give a dtype and memory; tests/ops/test_ragged_buffers.py",
    "ragged_ops.allocate_view_on": "as allocate_view_like",
    "transformer_inference.bias_residual": "it ignores all but one",
    "colossalai.FusedOptimizerLoader.multi_tensor_l2norm": "it ignores the flag",
}
"""Functions of several tensors without a call, and why."""
