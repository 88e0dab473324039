"""Mixtures of experts for ragged batches: the experts of each token, and its rows to and from them."""

from __future__ import annotations

import torch

from ...kernels.functions.outputs import require_apart, require_writable
from ..arguments import lie_below, require_floats, require_integers, require_like

__all__ = ["RaggedExperts"]

_UNASSIGNED = -1


class RaggedExperts:
    """deepspeed's functions for mixtures of experts, with its names."""

    def top_k_gating(
        self, expert_counts: torch.Tensor, scores: torch.Tensor, assignments: torch.Tensor, offsets: torch.Tensor,
        logits: torch.Tensor, batch_metadata: torch.Tensor,
    ) -> None:  # fmt: skip
        """Choose the experts of each token by the largest logits; among equal ones the first.

        Args:
            expert_counts: int32 ``(experts,)``, zeros; the number of tokens of each expert is added.
            scores: float32 ``(tokens, k)``, written: the softmax over all experts, for the chosen ones.
            assignments: int32 ``(tokens, k)``, written: the experts; -1 for padding.
            offsets: int32 ``(tokens, k)``, written: the row among the expert's rows, in token order; -1 for padding.
            logits: ``(tokens, experts)``.
            batch_metadata: int32 ``(2,)``: tokens, sequences.

        Raises:
            ValueError: when a shape or dtype does not fit.
            RuntimeError: when elements of an output share memory.
        """
        name = "top_k_gating"
        require_floats(name, (2,), logits=logits)
        rows, experts = logits.shape
        k = scores.shape[-1] if scores.dim() == 2 else 0
        require_like(name, (rows, k), torch.float32, scores=scores)
        require_like(name, (rows, k), torch.int32, assignments=assignments, offsets=offsets)
        require_like(name, (experts,), torch.int32, expert_counts=expert_counts)
        require_like(name, (2,), torch.int32, batch_metadata=batch_metadata)
        tokens = int(batch_metadata[0])
        _require(
            name,
            k <= experts and 0 <= tokens <= rows,
            f"k={k} with {experts} experts, and logits of {rows} tokens for a batch of {tokens}",
            "no more than the number of experts, and a row for each token",
            f"pass k={experts} at most, and the logits of the whole batch",
        )
        for written in (expert_counts, scores, assignments, offsets):
            require_writable(name, written, logits)
        require_apart(name, [expert_counts, scores, assignments, offsets])
        chosen = logits[:tokens].float().sort(dim=-1, descending=True, stable=True).indices[:, :k]
        scores[:tokens] = logits[:tokens].float().softmax(-1).gather(1, chosen)
        is_of = torch.nn.functional.one_hot(chosen.flatten(), experts)
        before = is_of.cumsum(0) - is_of + expert_counts
        offsets[:tokens] = before.gather(1, chosen.flatten()[:, None]).view(tokens, k).to(torch.int32)
        assignments[:tokens] = chosen.to(torch.int32)
        offsets[tokens:] = assignments[tokens:] = _UNASSIGNED
        expert_counts += is_of.sum(0).to(torch.int32)

    def moe_scatter(
        self, moe_input: torch.Tensor, expert_count_cumsums: torch.Tensor, mapped_slots: torch.Tensor,
        activations: torch.Tensor, expert_counts: torch.Tensor, assignments: torch.Tensor, offsets: torch.Tensor,
    ) -> None:  # fmt: skip
        """Copy each token's row to its experts' rows; experts follow one another.

        Args:
            moe_input: ``(tokens * k, channels)``; rows with a token are written.
            expert_count_cumsums: int64 ``(experts,)``, written: the end of each expert's rows.
            mapped_slots: int32 ``(tokens, k)``, written: the rows; -1 for padding.
            activations: ``(tokens, channels)``.
            expert_counts: int32 ``(experts,)``, from :meth:`top_k_gating`.
            assignments: int32 ``(tokens, k)``, from the same call.
            offsets: int32 ``(tokens, k)``, from the same call.

        Raises:
            ValueError: when a shape or dtype does not fit, or an assignment is out of range; nothing is written.
            RuntimeError: when elements of an output share memory.
        """
        name = "moe_scatter"
        require_floats(name, (2,), activations=activations)
        require_integers(name, (2,), assignments=assignments)
        (tokens, channels), k = activations.shape, assignments.shape[1]
        require_like(name, (tokens * k, channels), activations.dtype, moe_input=moe_input)
        require_like(
            name, (tokens, k), torch.int32, mapped_slots=mapped_slots, assignments=assignments, offsets=offsets
        )
        require_integers(name, (1,), expert_counts=expert_counts)
        require_like(name, tuple(expert_counts.shape), torch.int64, expert_count_cumsums=expert_count_cumsums)
        for written in (moe_input, expert_count_cumsums, mapped_slots):
            require_writable(name, written, activations)
        require_apart(name, [moe_input, expert_count_cumsums, mapped_slots])
        ends = expert_counts.long().cumsum(0)
        is_assigned = assignments != _UNASSIGNED
        expert = assignments[is_assigned].long()
        _require_below(name, "experts", expert, ends.shape[0])
        slots = (ends - expert_counts)[expert] + offsets[is_assigned]
        _require_below(name, "rows", slots, moe_input.shape[0])
        expert_count_cumsums.copy_(ends)
        mapped_slots.fill_(_UNASSIGNED)
        mapped_slots[is_assigned] = slots.to(torch.int32)
        moe_input[slots] = activations[is_assigned.nonzero()[:, 0]]

    def moe_gather(
        self, layer_output: torch.Tensor, moe_output: torch.Tensor, scores: torch.Tensor, mapped_slots: torch.Tensor,
        expert_count: torch.Tensor, normalize_scales: bool,
    ) -> None:  # fmt: skip
        """Write each token's sum of its experts' rows, weighted by its scores; padding does not change.

        Args:
            layer_output: ``(tokens, channels)``, written.
            moe_output: ``(tokens * k, channels)``, the experts' results for the rows of :meth:`moe_scatter`.
            scores: float32 ``(tokens, k)``.
            mapped_slots: int32 ``(tokens, k)``, from :meth:`moe_scatter`.
            expert_count: int32 ``(experts,)``, set to zero for the next call.
            normalize_scales: divide a token's scores by their sum.

        Raises:
            ValueError: when a shape or dtype does not fit, or a slot is out of range; nothing is written.
            RuntimeError: when elements of an output share memory.
        """
        name = "moe_gather"
        require_floats(name, (2,), layer_output=layer_output)
        require_floats(name, (2,), scores=scores)
        (tokens, channels), k = layer_output.shape, scores.shape[1]
        require_like(name, (tokens * k, channels), layer_output.dtype, moe_output=moe_output)
        require_like(name, (tokens, k), torch.float32, scores=scores)
        require_like(name, (tokens, k), torch.int32, mapped_slots=mapped_slots)
        require_like(name, (expert_count.numel(),), torch.int32, expert_count=expert_count)
        for written in (layer_output, expert_count):
            require_writable(name, written, moe_output)
        require_apart(name, [layer_output, expert_count])
        is_assigned = mapped_slots != _UNASSIGNED
        _require_below(name, "rows", mapped_slots[is_assigned], moe_output.shape[0])
        weights = scores.masked_fill(~is_assigned, 0)
        if normalize_scales:
            total = weights.sum(1, keepdim=True)
            weights = torch.where(total > 0, weights / total, weights)
        expert_count.zero_()
        used = is_assigned.any(1)
        rows = moe_output[mapped_slots[used].clamp_min(0).long()].float()
        layer_output[used] = (rows * weights[used][..., None]).sum(1).to(layer_output.dtype)


def _require_below(function: str, what: str, numbers: torch.Tensor, end: int) -> None:
    _require(
        function,
        lie_below(numbers, end),
        f"{what} outside [0, {end})",
        "the results of top_k_gating",
        "pass its results for this batch",
    )


def _require(function: str, is_right: bool, got: str, expected: str, fix: str) -> None:
    if not is_right:
        msg = f"{function} failed: got {got}; expected {expected}. Fix: {fix}."
        raise ValueError(msg)
