"""The text to learn from: the standard library's own sources, or a file."""

from __future__ import annotations

import hashlib
import math
import sysconfig
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from .outcome import DemoError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = ["Corpus", "check_resumable", "read_text"]

_MAX_CHARACTERS = 4_000_000
_MAX_VOCABULARY = 512
_MIN_CHARACTERS = 20_000


def read_text(file: Path | None) -> str:
    """Return a file's text, or that of the standard library's modules, at most four million characters.

    Raises:
        DemoError: when it is too short to learn from.
    """
    files = [file] if file is not None else sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    text = "\n".join(source.read_text(encoding="utf-8", errors="replace") for source in files)[:_MAX_CHARACTERS]
    if len(text) < _MIN_CHARACTERS:
        msg = (
            f"reading the text failed: it has {len(text)} characters; at least {_MIN_CHARACTERS} are needed. "
            f"Fix: pass a longer --text."
        )
        raise DemoError(msg)
    return text


def check_resumable(checkpoint: Path, corpus: Corpus) -> dict[str, Any]:
    """Return a checkpoint's content.

    Raises:
        DemoError: when it was trained on another text.
    """
    state: dict[str, Any] = torch.load(checkpoint, map_location="cpu")
    if state["text"] != corpus.digest:
        msg = (
            f"resuming failed: {checkpoint} was trained on another text. "
            f"Fix: choose another --out, or delete the checkpoint."
        )
        raise DemoError(msg)
    return state


class Corpus:
    """A text as numbers: nine tenths for training, one tenth for validation.

    Args:
        text: the text; characters beyond the 512 most common are mapped to one number.
    """

    def __init__(self, text: str) -> None:
        common = [character for character, _ in Counter(text).most_common(_MAX_VOCABULARY - 1)]
        numbers = {character: index for index, character in enumerate(sorted(common), start=1)}
        encoded = torch.tensor([numbers.get(character, 0) for character in text])
        self.digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        self.vocabulary = len(numbers) + 1
        split = len(encoded) * 9 // 10
        self.training, self.validation = encoded[:split], encoded[split:]

    def unigram_loss(self) -> float:
        """Return the cross entropy on the validation part, in nats, of the training part's character frequencies."""
        counts = torch.bincount(self.training, minlength=self.vocabulary).double() + 1.0
        log_probabilities = (counts / counts.sum()).log()
        loss = -log_probabilities[self.validation].mean().item()
        assert math.isfinite(loss)  # noqa: S101  # every count is at least one
        return loss

    def batch(self, size: int, context: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Return random training windows and the characters that follow each position, both (size, context)."""
        starts = torch.randint(len(self.training) - context - 1, (size,), generator=generator)
        windows = torch.stack([self.training[start : start + context + 1] for start in starts.tolist()])
        return windows[:, :-1], windows[:, 1:]

    def validation_batches(self, size: int, context: int, count: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield fixed validation windows, spread evenly."""
        starts = torch.linspace(0, len(self.validation) - context - 2, size * count).long().tolist()
        windows = torch.stack([self.validation[start : start + context + 1] for start in starts])
        for chunk in windows.split(size):
            yield chunk[:, :-1], chunk[:, 1:]
