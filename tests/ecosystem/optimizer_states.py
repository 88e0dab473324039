"""Takes a few steps with each optimizer of one side, from the state that another side has saved.

    python optimizer_states.py SIDE STEPS [FROM] TO

SIDE is ``stock`` (deepspeed's optimizers on its own ops), ``deepspeed`` (the same ones on our ops) or ``anyaccel`` (ours). FROM
and TO are files; without FROM, the optimizers begin.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

SIZES = (1, 33, 4096)


def optimizers(side: str) -> dict[str, Any]:
    """Return a function for each optimizer of a side, which takes parameters; stock deepspeed has no LAMB on a CPU."""
    decay = {"lr": 1e-2, "weight_decay": 0.1}
    if side == "anyaccel":
        from anyaccel import ops

        return {
            "CPUAdam": lambda params: ops.CPUAdam(params, **decay),
            "CPUAdam, bfloat16": lambda params: ops.CPUAdam(params, **decay),
            "CPUAdagrad": lambda params: ops.CPUAdagrad(params, **decay),
            "CPULion": lambda params: ops.CPULion(params, betas=(0.9, 0.999), **decay),
            "FusedAdam": lambda params: ops.FusedAdam(params, **decay),
            "FusedLamb": lambda params: ops.FusedLamb(params, max_coeff=10.0, min_coeff=0.01, **decay),
        }
    if side == "deepspeed":
        import anyaccel.integrations.deepspeed  # noqa: F401
    from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
    from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
    from deepspeed.ops.lamb import FusedLamb
    from deepspeed.ops.lion import DeepSpeedCPULion

    made = {
        "CPUAdam": lambda params: DeepSpeedCPUAdam(params, **decay),
        "CPUAdam, bfloat16": lambda params: DeepSpeedCPUAdam(params, **decay),
        "CPUAdagrad": lambda params: DeepSpeedCPUAdagrad(params, **decay),
        "CPULion": lambda params: DeepSpeedCPULion(params, betas=(0.9, 0.999), **decay),
        "FusedAdam": lambda params: FusedAdam(params, **decay),
    }
    return made if side == "stock" else {**made, "FusedLamb": lambda params: FusedLamb(params, **decay)}


def run(make: Any, dtype: torch.dtype, steps: int, begun: dict[str, Any] | None) -> dict[str, Any]:
    """Return the parameters, the number of steps and the state dict after more steps."""
    taken = begun["taken"] if begun else 0
    values = begun["params"] if begun else [torch.linspace(-1, 1, size).to(dtype) for size in SIZES]
    params = [torch.nn.Parameter(value.clone()) for value in values]
    optimizer = make(params)
    if begun:
        optimizer.load_state_dict(begun["state"])
        for group in optimizer.param_groups:  # deepspeed's classes need options that no other class has
            for key, value in optimizer.defaults.items():
                group.setdefault(key, value)
    for step in range(taken, taken + steps):
        for number, param in enumerate(params):
            generator = torch.Generator().manual_seed(100 * step + number)
            param.grad = torch.randn(param.shape, generator=generator).to(dtype)
        optimizer.step()
    return {
        "params": [param.detach() for param in params], "taken": taken + steps, "state": optimizer.state_dict(),
    }  # fmt: skip


def main(side: str, steps: int, *files: str) -> None:
    begun = torch.load(files[0]) if len(files) == 2 else {}
    if side != "anyaccel" and "CPUAdagrad" in begun:  # deepspeed's name, as docs/deepspeed.md says
        for state in begun["CPUAdagrad"]["state"]["state"].values():
            state["exp_avg_sq"] = state.pop("sum", state.get("exp_avg_sq"))
    ended = {}
    for name, make in optimizers(side).items():
        dtype = torch.bfloat16 if name.endswith("bfloat16") else torch.float32
        if not begun or name in begun:
            ended[name] = run(make, dtype, steps, begun.get(name))
    torch.save(ended, files[-1])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
