"""The cases of the op ``softmax``."""

from __future__ import annotations

import torch
from kernel_case import Case, random

from anyaccel import ops

CASES = {
    "softmax": Case(
        lambda r, c, d: [random(r, c, device=d)],
        lambda x: ops.scaled_masked_softmax(x, None, 0.5),
        lambda x: (0.5 * x).softmax(-1),
        5,
    ),
    "causal softmax": Case(
        lambda r, c, d: [random(r * c // 512**2, 512, 512, device=d), torch.ones(512, 512, device=d).triu(1).bool()],
        lambda x, _: ops.scaled_upper_triang_masked_softmax(x, 0.5),
        lambda x, hidden: (0.5 * x).masked_fill(hidden, -torch.inf).softmax(-1),
        5,
    ),
}
