"""A device stays CUDA's if its function goes on to refuse all other devices."""

from __future__ import annotations

import pytest

from anyaccel.migrate.source import migrate_source

_MADE = [
    'torch.device("cuda", i)',
    'torch.device("cuda")',
    'torch.device(f"cuda:{i}")',
    'torch.device("cuda" if i is None else i)',
    'i if i is not None else torch.device("cuda")',
    '"cuda"',
]
_REFUSES = [
    'if device.type != "cuda":\n        raise ValueError("no")',
    'assert device.type == "cuda"',
    'if device.type == "cuda":\n        i = 0\n    else:\n        raise ValueError("no")',
    'if "cuda" not in str(device):\n        raise ValueError("no")',
    'if not str(device).startswith("cuda"):\n        raise ValueError("no")',
    'if torch.device(device).type != "cuda":\n        raise ValueError("no")',
]
_MODULE = "import torch\n\n\ndef f(i, x):\n    device = {}\n    {}\n    return {}\n"


@pytest.mark.parametrize("refuses", _REFUSES)
@pytest.mark.parametrize("made", _MADE)
def test_it_stays_with_the_guard(made: str, refuses: str) -> None:
    source = _MODULE.format(made, refuses, "torch.cuda.get_device_capability()")
    assert migrate_source(source, "anyaccel").new == source


@pytest.mark.parametrize("made", _MADE)
def test_it_is_rewritten_without_one(made: str) -> None:
    new = migrate_source(_MODULE.format(made, "x = x.to(device)", "x"), "anyaccel").new
    assert "device_name(" in new


@pytest.mark.parametrize(
    "more", ["", "print(x)\n    ", "with open(x):\n        pass\n    ", "for _ in x:\n        pass\n    "]
)
@pytest.mark.parametrize("guard", ["if not {}:\n        raise SystemExit", 'assert {}, "needs a GPU"'])
def test_a_guard_stays_before_what_only_cuda_can(guard: str, more: str) -> None:
    question = "torch.cuda.is_available()"
    code = f"{guard.format(question)}\n    {more}print(torch.cuda.get_device_capability())"
    assert (
        question in migrate_source(_MODULE.format("0", code, "x.cuda()").replace("def f", "def main"), "anyaccel").new
    )


_LISTS = ["assert name in {}", 'if name not in {}:\n        raise ValueError("no")']


@pytest.mark.parametrize("check", _LISTS)
@pytest.mark.parametrize(
    ("listed", "other", "is_kept"),
    [
        ('["cpu", "cuda", "mps"]', 'torch.device("mps")', True),
        ('("cuda", "mps", "cpu")', '"mps"', True),
        ('["cpu", "cuda", "mps"]', "torch.device(name)", False),
        ('["cpu", "cuda"]', 'torch.device("mps")', False),
    ],
)
def test_a_list_stays_if_a_last_branch_is_apples(check: str, listed: str, other: str, is_kept: bool) -> None:
    source = f"import torch\n\n\ndef f(name):\n    {check.format(listed)}\n    return {other}\n"
    assert (migrate_source(source, "anyaccel").new == source) is is_kept


@pytest.mark.parametrize("name", ["CUDA", "_CUDA", "DEVICE_CUDA", "CUDA_NAME"])
@pytest.mark.parametrize("kind", ["", ": str"])
def test_a_constant_that_is_named_after_cuda_stays(name: str, kind: str) -> None:
    source = f'import torch\n\n{name}{kind} = "cuda"\nx = torch.ones(1, device={name})\n'
    assert migrate_source(source, "anyaccel").new == source
