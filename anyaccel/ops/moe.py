"""Mixtures of experts: gating, and moving tokens to their experts and back. Experts have no capacity limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .loading import loaded

if TYPE_CHECKING:
    import torch

    from ..kernels.functions.moe import Routing

__all__ = ["combine", "dispatch", "route", "topk_gating"]


def topk_gating(
    logits: torch.Tensor, k: int, *, normalise: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Choose each token's k experts of the largest probability, where ``probabilities = softmax(logits)`` over the experts.

    Computed in float32 (float64 for float64 logits). Ties go to the lower expert. A NaN or a +inf, and a row of -inf only,
    gives its token NaN weights and k times expert 0. The weights and the probabilities have gradients; a second derivative
    raises ``RuntimeError``.

    Args:
        logits: ``(tokens, experts)``, any strides; float32, bfloat16 or float16, on the CPU also float64.
        k: how many experts a token goes to; from 1 to ``min(experts, 16)``.
        normalise: divide each token's weights by their sum.

    Returns:
        The triple ``(weights, taken, probabilities)``. ``weights``: ``(tokens, k)``, the largest first. ``taken``: int64
        ``(tokens, k)``, the experts' numbers. ``probabilities``: ``(tokens, experts)``. Both floats are float32, or float64 for
        float64 logits.

    Raises:
        RuntimeError: if k is out of range, or the shape or dtype of the logits does not fit.
        OpError: if the kernel cannot be built or loaded on this machine.

    Source: Shazeer et al., arXiv:1701.06538; tests/ops/moe_reference.py

    Example:
        >>> weights, taken, _ = topk_gating(torch.tensor([[0.0, 2.0, 2.0]]), k=2, normalise=True)
        >>> weights, taken
        (tensor([[0.5000, 0.5000]]), tensor([[1, 2]]))
    """
    weights, taken, probabilities = loaded("MoeLoader").topk_gating(logits, k, normalise=normalise)
    return weights, taken, probabilities


def route(taken: torch.Tensor, experts: int) -> Routing:
    """Order the choices of all tokens by expert, and by token within each expert (a stable sort).

    It sorts on the device and does not wait for it. Nothing has a gradient.

    Args:
        taken: int64 ``(tokens, k)``, the experts' numbers, as :func:`topk_gating` returns them. They must be in
            ``0 .. experts - 1``, which is not checked; others are ordered and not counted.
        experts: how many experts there are.

    Returns:
        A ``Routing`` with three int64 tensors on taken's device. ``source``, ``(tokens * k,)``: the choice behind each row in the
        order of experts, where choice ``c`` is token ``c // k``. ``places``, ``(tokens, k)``: the row of each choice.
        ``counts``, ``(experts,)``: how many rows each expert has.

    Raises:
        ValueError: if ``taken`` is not int64 ``(tokens, k)``, or ``experts`` is negative.
        OpError: if the kernels of this family cannot be built or loaded on this machine.

    Source: Shazeer et al., arXiv:1701.06538; tests/ops/moe_reference.py

    Example:
        >>> routing = route(torch.tensor([[1, 0], [1, 2]]), experts=3)
        >>> routing.source.tolist(), routing.places.tolist(), routing.counts.tolist()
        ([1, 0, 2, 3], [[1, 0], [2, 3]], [1, 2, 1])
    """
    routing: Routing = loaded("MoeLoader").route(taken, experts)
    return routing


def dispatch(x: torch.Tensor, routing: Routing) -> torch.Tensor:
    """Copy tokens into the order of experts: ``rows = x[routing.source // k]``.

    ``x`` gets a gradient; a second derivative raises ``RuntimeError``.

    Args:
        x: ``(tokens, columns)``, any strides; float32, bfloat16 or float16, on the CPU also float64.
        routing: what :func:`route` returned for these tokens, on x's device. On the CPU an index that is out of range is an
            error; on a GPU it is not checked, and its row is 0.

    Returns:
        A contiguous tensor ``(tokens * k, columns)`` of x's dtype: expert 0's ``routing.counts[0]`` rows, then expert 1's, ...

    Raises:
        RuntimeError: if x or the routing does not fit, or, on the CPU, an index is out of range.
        OpError: if the kernel cannot be built or loaded on this machine.

    Source: Shazeer et al., arXiv:1701.06538; tests/ops/moe_reference.py

    Example:
        >>> routing = route(torch.tensor([[1, 0], [1, 2]]), experts=3)
        >>> dispatch(torch.tensor([[1.0], [2.0]]), routing).flatten()
        tensor([1., 1., 2., 2.])
    """
    rows: torch.Tensor = loaded("MoeLoader").dispatch(x, routing)
    return rows


def combine(rows: torch.Tensor, weights: torch.Tensor, routing: Routing) -> torch.Tensor:
    """Add up each token's rows by their weights: ``y[t] = sum over j of weights[t, j] * rows[routing.places[t, j]]``.

    The sums are computed in float32 (float64 for float64 rows). ``rows`` and ``weights`` get gradients; a second derivative
    raises ``RuntimeError``.

    Args:
        rows: ``(tokens * k, columns)``, in the order of experts, any strides; float32, bfloat16 or float16, on the CPU also
            float64.
        weights: ``(tokens, k)``, float32 (float64 for float64 rows), as :func:`topk_gating` returns them.
        routing: what :func:`route` returned for these tokens, on rows' device. On the CPU an index that is out of range is an
            error; on a GPU it is not checked, and counts as a row of 0.

    Returns:
        A contiguous tensor ``(tokens, columns)`` of rows' dtype.

    Raises:
        RuntimeError: if an argument does not fit, or, on the CPU, an index is out of range.
        OpError: if the kernel cannot be built or loaded on this machine.

    Source: Shazeer et al., arXiv:1701.06538; tests/ops/moe_reference.py

    Example:
        >>> routing, weights = route(torch.tensor([[1, 0]]), experts=2), torch.tensor([[0.25, 0.75]])
        >>> combine(torch.tensor([[10.0], [20.0]]), weights, routing)
        tensor([[12.5000]])
    """
    y: torch.Tensor = loaded("MoeLoader").combine(rows, weights, routing)
    return y
