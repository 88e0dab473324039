"""The cases of the op ``moe``."""

from __future__ import annotations

import torch
from kernel_case import Case, random

from anyaccel import ops
from anyaccel.kernels.functions.moe import Routing


def _experts(rows: int, columns: int, device: str) -> list[torch.Tensor]:
    taken = torch.stack([torch.randperm(8)[:2] for _ in range(rows)]).to(device)
    routing = ops.route(taken, 8)
    return [random(rows, columns, device=device), random(rows, 2, device=device), routing.source, routing.places]


def _moved(x: torch.Tensor, weights: torch.Tensor, routing: Routing) -> torch.Tensor:
    return ops.combine(ops.dispatch(x, routing), weights, routing)


CASES = {
    "top-2 gating, 64 experts": Case(
        lambda r, c, d: [random(r * c // 64, 64, device=d)],
        lambda x: ops.topk_gating(x, 2)[0],
        lambda x: x.softmax(-1).topk(2, -1)[0],
        4,
    ),
    "dispatch and combine, k = 2": Case(
        _experts,
        lambda x, w, source, places: _moved(x, w.float(), Routing(source, places, places)),
        lambda x, w, source, places: (x[source // 2][places] * w[..., None]).sum(1),
        15,
    ),
}
