"""A deepspeed program that uses features which stock has only for GPUs or with further packages, and writes the losses.

Run by ``torchrun`` with the feature, the backend and the file for the losses.
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

STEPS = 12
BATCH, TOKENS, CHANNELS = 4, 16, 64
FILES = {"block_size": 4096, "queue_depth": 8, "single_submit": False, "overlap_events": True}
QUANTIZED = {"stage3_param_persistence_threshold": 0}


def zero(stage: int, **more: Any) -> dict[str, Any]:
    return {"zero_optimization": {"stage": stage, **more}}


def on_files(folder: Path) -> dict[str, Any]:
    both = {"device": "nvme", "nvme_path": str(folder), "pin_memory": False}
    optimizer, parameters = {**both, "buffer_count": 5}, {**both, "buffer_count": 20, "buffer_size": 100_000}
    return {**zero(3, offload_optimizer=optimizer, offload_param=parameters, sub_group_size=5000), "aio": FILES}


ZENFLOW = {
    "topk_ratio": 0.25,
    "select_strategy": "step",
    "select_interval": 2,
    "update_interval": 2,
    "overlap_step": True,
}
TOKEN_DROPPING = {
    "total_layer_num": 3, "random_ltd_layer_num": 2, "random_ltd_layer_id": [0, 1], "model_mask_name": None,
    "model_type": "decoder", "hidden_state_order": "batch_seq_dim",
    "random_ltd_schedule": {
        "min_value": 8, "max_value": 16, "schedule_type": "fixed_linear",
        "schedule_config": {"require_steps": 8, "seq_per_step": 4},
    },
}  # fmt: skip
WAYS: dict[str, dict[str, Any]] = {
    "stage 3": zero(3),
    "files": {},
    "quantized weights": zero(3, zero_quantized_weights=True, **QUANTIZED),
    "quantized gradients": zero(3, zero_quantized_gradients=True, **QUANTIZED),
    "ZeRO++": zero(
        3, zero_quantized_weights=True, zero_quantized_gradients=True, zero_hpz_partition_size=2, **QUANTIZED
    ),
    "ZenFlow": {**zero(2, offload_optimizer={"device": "cpu"}, zenflow=ZENFLOW), "bf16": {"enabled": True}},
    "token dropping": {
        **zero(0),
        "data_efficiency": {
            "enabled": True,
            "data_routing": {"enabled": True, "random_ltd": {"enabled": True, **TOKEN_DROPPING}},
        },
    },
}


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(CHANNELS, CHANNELS, bias=False)
        self.second = nn.Linear(CHANNELS, CHANNELS, bias=False)
        self.seen: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x.shape[1])
        return x + self.second(nn.functional.gelu(self.first(x)))


def engine_for(way: str, out: Path) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(Layer(), Layer(), Layer())
    config = {
        "train_micro_batch_size_per_gpu": BATCH,
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-3}},
        **(on_files(out.parent) if way == "files" else WAYS[way]),
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    if way == "token dropping":
        from deepspeed.runtime.data_pipeline.data_routing.helper import convert_to_random_ltd

        convert_to_random_ltd(engine, Layer)
    return engine


def train(engine: Any) -> list[float]:
    rank, losses = torch.distributed.get_rank(), []
    dtype = torch.bfloat16 if engine.bfloat16_enabled() else torch.float32
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(100 * (step % 3) + rank)
        x = torch.randn(BATCH, TOKENS, CHANNELS, generator=generator).to(dtype)
        loss = (engine(x) - x.flip(2)).float().square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


def main(way: str, backend: str, out: Path) -> None:
    deepspeed.init_distributed(dist_backend=backend)
    engine = engine_for(way, out)
    losses = train(engine)
    seen = [module.seen for module in engine.module.modules() if isinstance(module, Layer)]
    if torch.distributed.get_rank() == 0:
        out.write_text(json.dumps({"losses": losses, "seen": seen}))
    torch.distributed.barrier()
    engine.destroy()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
