"""Choices between CUDA and the CPU, in every way to write the name and its index: each gives a CPU its own name."""

from __future__ import annotations

from typing import Any

import pytest

from anyaccel import CPU_Accelerator, use_accelerator
from anyaccel.migrate.source import migrate_source

_INDICES = (
    "rank",
    "torch.cuda.current_device()",
    "current_device()",
    "rank % torch.cuda.device_count()",
    "max(rank, 0)",
    "most_free()",
)
_NAMES = ('f"cuda:{{{index}}}"', '"cuda:%d" % ({index})', '"cuda:" + str({index})', '"cuda:{{}}".format({index})')
_FORMS = (
    'device = {name} if torch.cuda.is_available() else "cpu"',
    'device = "cpu" if not torch.cuda.is_available() else {name}',
    'device = torch.device({name} if torch.cuda.is_available() else "cpu")',
    'device = torch.device({name}) if torch.cuda.is_available() else torch.device("cpu")',
    'if torch.cuda.is_available():\n    device = {name}\nelse:\n    device = "cpu"',
    'if torch.cuda.is_available():\n    device = torch.device({name})\nelse:\n    device = torch.device("cpu")',
    'device = "cpu"\nif torch.cuda.is_available():\n    device = {name}',
)


def _ask_nvidia() -> int:
    raise OSError("nvidia-smi")


@pytest.mark.parametrize("index", _INDICES)
@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("form", _FORMS)
def test_a_cpu_gets_its_own_name(form: str, name: str, index: str) -> None:
    choice = form.format(name=name.format(index=index))
    source = (
        f"import torch\nfrom torch.cuda import current_device\nrank = 0\n{choice}\nmoved = torch.ones(1).to(device)\n"
    )
    migrated = migrate_source(source, "anyaccel")
    assert not [site for site in migrated.sites if "torch.cuda" in site.replacement], migrated.new
    found: dict[str, Any] = {"most_free": _ask_nvidia}
    with use_accelerator(CPU_Accelerator()):
        exec(migrated.new, found)  # noqa: S102, the code under test
    assert str(found["device"]) == "cpu", migrated.new


@pytest.mark.parametrize("again", ['device in ("cuda",)', 'device == "cuda"'])
def test_a_fallback_that_asks_twice_for_the_device_stays(again: str) -> None:
    source = (
        'import torch\n\n\ndef chosen(device):\n    if device == "cuda" and torch.cuda.is_available():\n        return 0\n'
        f'    elif {again}:\n        return "cpu"\n    return device\n'
    )
    assert migrate_source(source).new == source
