"""The cases of the op ``square``."""

from __future__ import annotations

import torch
from kernel_case import Case, random

from anyaccel import ops

CASES = {"square": Case(lambda r, c, d: [random(r, c, device=d)], ops.square, torch.square, 5)}
