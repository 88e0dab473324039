"""A transformers Trainer with our optimizer and norms: a tiny random Llama, without downloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from anyaccel import ops

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore")

CONFIG = LlamaConfig(
    vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64,
)  # fmt: skip
SAVED = 4


def llama(*, ours: bool) -> LlamaForCausalLM:
    set_seed(0)
    model = LlamaForCausalLM(CONFIG)
    norms = [(name, module) for name, module in model.named_modules() if isinstance(module, LlamaRMSNorm)]
    for name, stock in norms if ours else []:
        norm = ops.RMSNorm(stock.weight.numel(), stock.variance_epsilon)
        norm.weight = stock.weight
        model.set_submodule(name, norm)
    return model


def losses(folder: Path, make: Callable[..., Any], *, ours: bool, resumes: bool = False) -> list[float]:
    generator = torch.Generator().manual_seed(3)
    tokens = [torch.randint(128, (16,), generator=generator) for _ in range(64)]
    arguments = TrainingArguments(
        str(folder), per_device_train_batch_size=8, num_train_epochs=1, logging_steps=1, save_steps=SAVED, use_cpu=True,
        report_to="none", disable_tqdm=True, max_grad_norm=0.5, dataloader_pin_memory=False, warmup_steps=2, seed=1,
    )  # fmt: skip
    model = llama(ours=ours)
    trainer = Trainer(
        model, arguments, train_dataset=[{"input_ids": one, "labels": one} for one in tokens],
        optimizers=(make(model.parameters()), None),
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=str(folder / f"checkpoint-{SAVED}") if resumes else None)
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def test_a_trainer_has_stock_losses_and_resumes(tmp_path: Path) -> None:
    def ours(params: Any) -> ops.CPUAdam:
        return ops.CPUAdam(params, lr=3e-3)

    trained = losses(tmp_path / "ours", ours, ours=True)
    stock = losses(tmp_path / "stock", lambda params: torch.optim.AdamW(params, lr=3e-3), ours=False)
    assert trained == pytest.approx(stock, rel=1e-4)
    assert losses(tmp_path / "ours", ours, ours=True, resumes=True)[SAVED:] == trained[SAVED:]


def test_a_saved_model_is_a_stock_model(tmp_path: Path) -> None:
    model = llama(ours=True)
    model.save_pretrained(tmp_path)
    stock, tokens = LlamaForCausalLM.from_pretrained(tmp_path), torch.arange(16)[None]
    torch.testing.assert_close(stock(tokens).logits, model(tokens).logits)
