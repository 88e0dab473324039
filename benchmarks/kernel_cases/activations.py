"""The cases of the op ``activations``."""

from __future__ import annotations

from kernel_case import Case, random
from torch.nn import functional

from anyaccel import ops

CASES = {
    "SwiGLU": Case(
        lambda r, c, d: [random(r, c, device=d), random(r, c, device=d)],
        ops.swiglu,
        lambda gate, up: functional.silu(gate) * up,
        8,
    ),
    "GeGLU": Case(
        lambda r, c, d: [random(r, c, device=d), random(r, c, device=d)],
        ops.geglu,
        lambda gate, up: functional.gelu(gate) * up,
        8,
    ),
    "bias-GELU": Case(
        lambda r, c, d: [random(r, c, device=d), random(c, device=d)],
        ops.bias_gelu,
        lambda x, b: functional.gelu(x + b, approximate="tanh"),
        5,
    ),
}
