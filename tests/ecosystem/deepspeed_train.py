"""A deepspeed program that does not use this project: trains a small model in many configurations, and writes the losses.

Run by ``torchrun`` with the backend and the file for the losses.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import deepspeed
import torch
from torch import nn

STEPS = 4
BATCH = 4


def config(stage: int, optimizer: str = "AdamW", **more: Any) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": BATCH,
        "optimizer": {"type": optimizer, "params": {"lr": 1e-2, "weight_decay": 0.01}},
        "zero_optimization": {"stage": stage, **more.pop("zero", {})},
        "zero_allow_untested_optimizer": True,
        "wall_clock_breakdown": False,
        **more,
    }


TORCH_ADAM = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}}}
OFFLOADED = {"offload_optimizer": {"device": "cpu", "pin_memory": True}}
WAYS: dict[str, dict[str, Any]] = {
    **{f"stage {stage}": config(stage) for stage in range(4)},
    **{f"stage {stage}, torch's Adam": {**config(stage), **TORCH_ADAM} for stage in range(4)},
    **{f"stage {stage}, offload": config(stage, zero=OFFLOADED) for stage in (1, 2, 3)},
    "stage 3, parameters offloaded": config(3, zero={**OFFLOADED, "offload_param": {"device": "cpu"}}),
    **{f"stage {stage}, bf16": config(stage, bf16={"enabled": True}) for stage in range(4)},
    "stage 2, bf16, offload": config(2, bf16={"enabled": True}, zero=OFFLOADED),
    **{f"stage {stage}, clipping": config(stage, gradient_clipping=0.1) for stage in range(4)},
    "stage 0, accumulation": config(0, gradient_accumulation_steps=2),
    "stage 1, Adagrad, offload": {
        **config(1, zero=OFFLOADED),
        "optimizer": {"type": "Adagrad", "params": {"lr": 1e-2}},
    },
    "stage 1, Lion, offload": {
        **config(1, zero=OFFLOADED),
        "optimizer": {"type": "Lion", "params": {"lr": 1e-3, "betas": [0.9, 0.99]}},
    },
    "stage 2, checkpointing": config(2, activation_checkpointing={"partition_activations": False}),
}


class Model(nn.Module):
    def __init__(self, *, recomputes: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Linear(16, 33), nn.Sequential(nn.GELU(), nn.LayerNorm(33)), nn.Linear(33, 16, bias=False)]
        )
        self.recomputes = recomputes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = deepspeed.checkpointing.checkpoint(layer, x) if self.recomputes else layer(x)
        return x


def engine_for(way: str) -> Any:
    torch.manual_seed(0)
    model = Model(recomputes=way.endswith("checkpointing"))
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=WAYS[way])
    return engine


def train(engine: Any, steps: range) -> list[float]:
    rank, losses = torch.distributed.get_rank(), []
    dtype = torch.bfloat16 if engine.bfloat16_enabled() else torch.float32
    for step in steps:
        generator = torch.Generator().manual_seed(100 * step + rank)
        x = torch.randn(BATCH, 16, generator=generator).to(dtype)
        loss = (engine(x.requires_grad_()) - x.detach().flip(1)).square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


def main(backend: str, out: Path) -> None:
    deepspeed.init_distributed(dist_backend=backend)
    losses = {}
    for way in WAYS:
        engine = engine_for(way)
        if way.endswith("checkpointing"):
            deepspeed.checkpointing.configure(None, deepspeed_config=engine.config)
        before = train(engine, range(STEPS))
        folder = out.parent / "checkpoints" / way
        engine.save_checkpoint(folder, tag="four")
        after = train(engine, range(STEPS, 2 * STEPS))
        engine.destroy()

        resumed = engine_for(way)
        resumed.load_checkpoint(folder, tag="four")
        again = train(resumed, range(STEPS, 2 * STEPS))
        resumed.destroy()
        losses[way] = {"losses": [*before, *after], "resumed": again}
    names = type(deepspeed.accelerator.get_accelerator()).__module__, type(engine.optimizer).__module__
    if torch.distributed.get_rank() == 0:
        out.write_text(json.dumps({"accelerator": names[0], "losses": losses}))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    main(sys.argv[1], Path(sys.argv[2]))
