"""Mixtures of experts, slow and simple: one token after another."""

from __future__ import annotations

import torch


def topk_gating(logits: torch.Tensor, k: int, normalise: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    probabilities = torch.exp(logits) / torch.exp(logits).sum(1, keepdim=True)
    taken = torch.tensor([sorted(range(logits.shape[1]), key=lambda e: (-row[e].item(), e))[:k] for row in logits])
    taken = taken.view(logits.shape[0], k).long()
    weights = probabilities.gather(1, taken)
    return weights / weights.sum(1, keepdim=True) if normalise else weights, taken, probabilities


def expert_order(taken: torch.Tensor, experts: int) -> list[tuple[int, int]]:
    """Return the (token, choice) of each row, expert after expert."""
    entries = [(token, choice) for token in range(taken.shape[0]) for choice in range(taken.shape[1])]
    return [entry for expert in range(experts) for entry in entries if taken[entry] == expert]
