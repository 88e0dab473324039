"""Optimizers, slow and simple, in float64: one tensor, one step, returning the parameter and its states."""

from __future__ import annotations

import torch

Tensor = torch.Tensor


def adam(p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: int, **o: float) -> tuple[Tensor, ...]:
    g = -g if o["maximize"] else g
    g = g if o["adamw_mode"] else g + o["weight_decay"] * p
    m = o["beta1"] * m + (1 - o["beta1"]) * g
    v = o["beta2"] * v + (1 - o["beta2"]) * g * g
    mean, square = (m / (1 - o["beta1"] ** step), v / (1 - o["beta2"] ** step)) if o["bias_correction"] else (m, v)
    p = p * (1 - o["lr"] * o["weight_decay"]) if o["adamw_mode"] else p
    return p - o["lr"] * mean / (square.sqrt() + o["eps"]), m, v


def lion(p: Tensor, g: Tensor, m: Tensor, **o: float) -> tuple[Tensor, ...]:
    g = -g if o["maximize"] else g
    direction = (o["beta1"] * m + (1 - o["beta1"]) * g).sign()
    p = p * (1 - o["lr"] * o["weight_decay"]) - o["lr"] * direction
    return p, o["beta2"] * m + (1 - o["beta2"]) * g


def adagrad(p: Tensor, g: Tensor, total: Tensor, **o: float) -> tuple[Tensor, ...]:
    g = (-g if o["maximize"] else g) + o["weight_decay"] * p
    total = total + g * g
    return p - o["lr"] * g / (total.sqrt() + o["eps"]), total


def sgd(p: Tensor, g: Tensor, buffer: Tensor, **o: float) -> tuple[Tensor, ...]:
    g = (-g if o["maximize"] else g) + o["weight_decay"] * p
    dampening = o["dampening"] if o["momentum"] else 0  # like torch
    buffer = g if o["first_step"] else o["momentum"] * buffer + (1 - dampening) * g
    return p - o["lr"] * (g + o["momentum"] * buffer if o["nesterov"] else buffer), buffer


def lamb(p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: int, **o: float) -> tuple[Tensor, ...]:
    """Return the ratio of norms as the last result."""
    g = -g if o["maximize"] else g
    m = o["beta1"] * m + (1 - o["beta1"]) * g
    v = o["beta2"] * v + (1 - o["beta2"]) * g * g
    denominator = (v + o["eps"]).sqrt() if o["eps_inside_sqrt"] else v.sqrt() + o["eps"]
    update = m / denominator + o["weight_decay"] * p
    ratio = torch.tensor(1.0, dtype=torch.float64)
    if p.norm() > 0 and update.norm() > 0:
        ratio = (p.norm() / update.norm()).clamp(o["min_coeff"], o["max_coeff"])
    correction = (1 - o["beta2"] ** step) ** 0.5 / (1 - o["beta1"] ** step) if o["bias_correction"] else 1.0
    return p - o["lr"] * correction * ratio * update, m, v, ratio
