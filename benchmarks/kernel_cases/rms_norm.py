"""The cases of the op ``rms_norm``."""

from __future__ import annotations

from kernel_case import Case, random
from torch.nn import functional

from anyaccel import ops

CASES = {
    "RMSNorm": Case(
        lambda r, c, d: [random(r, c, device=d), random(c, device=d)],
        lambda x, w: ops.rms_norm(x, w, 1e-6),
        lambda x, w: functional.rms_norm(x, w.shape, w, 1e-6),
        5,
    ),
}
