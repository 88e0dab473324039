"""Trains the character transformer; one process of torchrun, on this machine's accelerator.

``torchrun --nproc-per-node 2 -m anyaccel.demo.train --steps 300``
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from ..accelerator import get_accelerator
from ..accelerator.errors import AnyaccelError
from ..ops import CPUAdam
from .model import CharTransformer
from .outcome import write_metrics
from .text import Corpus, check_resumable, read_text

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["main"]

CONTEXT = 128
BATCH = 16
LEARNING_RATE = 2e-3
WARMUP_STEPS = 20
VALIDATE_EVERY = 50
VALIDATION_BATCHES = 8


class HostAdam:
    """CPUAdam for a model on any device: parameters on other devices have a float32 master copy in host memory."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.masters = [
            parameter if parameter.device.type == "cpu" else torch.nn.Parameter(parameter.detach().float().cpu())
            for parameter in self.parameters
        ]
        self.adam = CPUAdam(self.masters, lr=LEARNING_RATE)

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Take one step and clear the gradients."""
        self.adam.param_groups[0]["lr"] = learning_rate
        moved = [pair for pair in zip(self.parameters, self.masters, strict=True) if pair[0] is not pair[1]]
        for parameter, master in moved:
            master.grad = None if parameter.grad is None else parameter.grad.to("cpu", torch.float32)
        self.adam.step()
        for parameter, master in moved:
            parameter.copy_(master)
            parameter.grad = None
        self.adam.zero_grad()


class Trainer:
    """One rank's part of the training.

    Args:
        corpus: the text.
        folder: the folder for the checkpoint and the metrics.
    """

    def __init__(self, corpus: Corpus, folder: Path) -> None:
        self.accelerator = get_accelerator()
        self.device = self.accelerator.current_device_name()
        self.corpus = corpus
        self.checkpoint = folder / "checkpoint.pt"
        torch.manual_seed(0)
        self.model = CharTransformer(corpus.vocabulary, CONTEXT).to(self.device)
        self.optimizer = HostAdam(self.model.parameters())
        self.history: dict[str, Any] = {"step": 0, "training": [], "validation": []}
        if self.checkpoint.exists():
            self._resume(check_resumable(self.checkpoint, corpus))
        self.parallel = DistributedDataParallel(self.model)
        self.generator = torch.Generator().manual_seed(self.history["step"] * dist.get_world_size() + dist.get_rank())

    def step(self) -> float:
        """Train on one batch and return its loss on this rank."""
        characters, following = self.corpus.batch(BATCH, CONTEXT, self.generator)
        loss: torch.Tensor = self.parallel(characters.to(self.device), following.to(self.device))
        loss.backward()
        clip_grad_norm_(self.model.parameters(), 1.0)
        self.history["step"] += 1
        self.optimizer.step(LEARNING_RATE * min(1.0, self.history["step"] / WARMUP_STEPS))
        self.history["training"].append((self.history["step"], loss.item()))
        return self.history["training"][-1][1]  # type: ignore[no-any-return]

    @torch.no_grad()
    def validate(self) -> float:
        """Return the validation loss; each rank computes its share."""
        batches = list(self.corpus.validation_batches(BATCH, CONTEXT, VALIDATION_BATCHES * dist.get_world_size()))
        share = batches[dist.get_rank() :: dist.get_world_size()]
        losses = [self.model(characters.to(self.device), following.to(self.device)) for characters, following in share]
        total = torch.stack(losses).mean()
        dist.all_reduce(total)
        loss = total.item() / dist.get_world_size()
        self.history["validation"].append((self.history["step"], loss))
        return loss

    def save(self) -> None:
        """Write the checkpoint atomically, from rank 0."""
        if dist.get_rank() != 0:
            return
        state = {
            "text": self.corpus.digest,
            "history": self.history,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.adam.state_dict(),
        }
        partial = self.checkpoint.with_suffix(".partial")
        torch.save(state, partial)
        os.replace(partial, self.checkpoint)

    def _resume(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        for parameter, master in zip(self.optimizer.parameters, self.optimizer.masters, strict=True):
            master.data.copy_(parameter.data)
        self.optimizer.adam.load_state_dict(state["optimizer"])
        self.history = state["history"]


def train(trainer: Trainer, steps: int, folder: Path) -> None:
    """Train for some steps with a progress bar, validate periodically, and write the results from rank 0."""
    is_first = dist.get_rank() == 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    seconds = 0.0
    resumed = trainer.history["step"]
    with Progress(*columns, TextColumn("{task.fields[shown]}"), disable=not is_first) as progress:
        task = progress.add_task("training" if not resumed else f"resumed at {resumed}", total=steps, shown="")
        if not resumed:
            trainer.validate()
        for done in range(1, steps + 1):
            started = time.perf_counter()
            loss = trainer.step()
            seconds += time.perf_counter() - started
            tokens_per_second = done * BATCH * CONTEXT * dist.get_world_size() / seconds
            progress.update(task, advance=1, shown=f"loss {loss:.3f}  {tokens_per_second:,.0f} tokens/s")
            if done % VALIDATE_EVERY == 0 or done == steps:
                trainer.validate()
                trainer.save()
    if is_first:
        metrics = {
            **trainer.history,
            "unigram_loss": trainer.corpus.unigram_loss(),
            "tokens_per_second": tokens_per_second,
            "device": trainer.accelerator.device_name(),
            "backend": dist.get_backend(),
            "ranks": dist.get_world_size(),
        }
        write_metrics(folder, metrics)
    dist.barrier()  # the rank that still writes would miss a rank that has left


def main() -> None:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, help="the text to learn; the standard library's sources by default")
    parser.add_argument("--out", type=Path, default=Path("demo_out"), help="where the results go")
    parser.add_argument("--steps", type=int, default=300, help="how many steps to train")
    arguments = parser.parse_args()
    accelerator = get_accelerator()
    accelerator.set_device(dist.get_node_local_rank())
    dist.init_process_group(accelerator.communication_backend_name())
    console = Console(stderr=True, quiet=dist.get_rank() != 0)
    arguments.out.mkdir(parents=True, exist_ok=True)
    try:
        train(Trainer(Corpus(read_text(arguments.text)), arguments.out), arguments.steps, arguments.out)
    except AnyaccelError as error:
        console.print(f"[red]error:[/] {escape(str(error))}", soft_wrap=True)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        console.print("stopped; run again to resume from the last checkpoint")
        raise SystemExit(130) from None
    finally:
        gc.collect()  # first free the objects that refer to the group: its threads must not outlive the interpreter
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
