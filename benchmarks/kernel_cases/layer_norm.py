"""The cases of the op ``layer_norm``."""

from __future__ import annotations

from kernel_case import Case, random
from torch.nn import functional

from anyaccel import ops

CASES = {
    "LayerNorm": Case(
        lambda r, c, d: [random(r, c, device=d), random(c, device=d), random(c, device=d)],
        lambda x, w, b: ops.layer_norm(x, w, b, 1e-5),
        lambda x, w, b: functional.layer_norm(x, w.shape, w, b, 1e-5),
        5,
    ),
}
