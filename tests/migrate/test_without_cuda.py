"""The second law: on a machine without CUDA, a migrated function does what it did before, unless it needed CUDA."""

from __future__ import annotations

import re

import pytest

from anyaccel.migrate.source import migrate_source

from . import corpus
from .without_cuda import outcomes

EXCEPTIONS = {
    ("comparisons", "precision"): "a choice by is_bf16_supported() is the CPU's own",
    ("third-reading", "int_to_device"): "only CUDA takes an index as a device",
    ("handed-to-torch", "embed"): "what is passed on is torch.cuda.amp, whose autocast does nothing without CUDA",
    ("handed-to-torch", "Model.train"): "only CUDA takes an index as a device",
    ("op-builder", "<module>"): "deepspeed's builders come from the accelerator",
}
ASKS_FOR_CUDA = re.compile(r"cuda|nccl|device_ids=\[", re.IGNORECASE)


def differences(source: str, seed: int) -> dict[str, str]:
    """Return the functions that do something else after the migration, with the first difference."""
    before, after = (
        outcomes(source, is_new=False, seed=seed),
        outcomes(migrate_source(source).new, is_new=True, seed=seed),
    )
    found: dict[str, str] = {}
    if before["<module>"] is None and len(before) > 1:
        return found  # without CUDA, the module stops before it has any functions
    for name, old in before.items():
        new = after.get(name) or ["needs CUDA"]
        if old is not None and old != new and not ASKS_FOR_CUDA.search(" ".join(old)):
            found[name] = next(f"{a} -> {b}" for a, b in zip([*old, ""], [*new, ""], strict=False) if a != b)
    return found


@pytest.mark.parametrize("name", corpus.names())
def test_a_cpu_does_the_same_as_before(name: str) -> None:
    for seed in (0, 1, 6, 9):
        found = differences(corpus.before(name), seed)
        assert {each: what for each, what in found.items() if (name, each) not in EXCEPTIONS} == {}


@pytest.mark.parametrize(
    "code",
    [
        "    if get_accelerator().is_available():\n        x = x * 2\n    return x",
        "    return x.half() if get_accelerator().on_accelerator(x) else x",
        "    use = get_accelerator().is_available()\n    return launch(x, use)",
        "    return x / max(1, get_accelerator().device_count())",
        "    if get_accelerator().is_available():\n        print('GPU')\n    return x",
    ],
)
def test_the_comparison_finds_another_answer(code: str) -> None:
    head = "import torch\nfrom anyaccel import get_accelerator\ndef f(x, launch):\n"
    old = code.replace("get_accelerator().on_accelerator(x)", "x.is_cuda").replace("get_accelerator()", "torch.cuda")
    before = outcomes(f"{head}{old}\n", is_new=False, seed=1)
    assert before["f"] is not None
    assert outcomes(f"{head}{code}\n", is_new=True, seed=1)["f"] != before["f"]
