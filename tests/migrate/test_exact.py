"""Questions that a CPU answers with no: on CUDA and without it, the new expression has the old one's value."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from anyaccel.migrate.source import migrate_source

QUESTIONS = [
    "torch.cuda.is_available()",
    "not torch.cuda.is_available()",
    "torch.cuda.is_available() == False",
    "torch.cuda.device_count()",
    "not torch.cuda.device_count()",
    *(f"torch.cuda.device_count() {test}" for test in ("> 0", ">= 1", "!= 0", "== 0", "< 1", "<= 0")),
    *(f"torch.cuda.device_count() {test}" for test in ("> 1", ">= 2", "== 1", "== 2", "!= 2", "<= 1", "< 2", "< 9")),
    "not torch.cuda.device_count() > 1",
    "torch.cuda.is_available() and torch.cuda.device_count() > 1",
    "not torch.cuda.is_available() or torch.cuda.device_count() < 2",
    "torch.cuda.device_count() if torch.cuda.is_available() else 7",
    "3 + torch.cuda.device_count() * 2",
    "f'{torch.cuda.device_count() + 1}' == '3'",
    'f"{torch.cuda.device_count() + 1}" == "1"',
    "x.is_cuda",
    "not x.is_cuda",
    "x.is_cuda == True",
    "x.is_cuda or flag",
    "flag and not x.is_cuda and x.is_cuda",
    "device.type == 'cuda'",
    "'cuda' == device.type",
    "device.type != 'cuda'",
    "not device.type == 'cuda'",
    "(device.type == 'cuda') == flag",
    "device.type != 'cuda' and flag",
    "'cuda' in str(device)",
    "'cuda' not in str(device)",
    "str(device).startswith('cuda')",
    "device.type == torch.device('cuda').type",
    "torch.cuda.is_available() or device.type == 'cuda'",
]


def value_of(expression: str, machine: str, device: str, *, flag: bool) -> Any:
    """Evaluate an expression on a machine with two CUDA devices or with none; a CPU's accelerator counts three."""
    is_cuda = machine == "cuda"
    cuda = SimpleNamespace(is_available=lambda: is_cuda, device_count=lambda: 2 if is_cuda else 0)
    accelerator = SimpleNamespace(
        device_name=lambda *_: machine,
        device_count=lambda: 2 if is_cuda else 3,
        is_available=lambda: True,
        on_accelerator=lambda tensor: tensor.device.type == machine,
    )
    space = {
        "torch": SimpleNamespace(cuda=cuda, device=torch.device),
        "get_accelerator": lambda: accelerator,
        "device": torch.device(device),
        "x": SimpleNamespace(is_cuda=device.startswith("cuda"), device=torch.device(device)),
        "flag": flag,
    }
    return eval(expression, space)  # noqa: S307  # the questions above, and the tool's own output


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_has_its_old_value_on_cuda_and_without_it(question: str) -> None:
    before = f"import torch\ndef f(x, device, flag):\n    return [x.half()] if ({question}) else x, [({question})]\n"
    (returned,) = [node for node in ast.walk(ast.parse(migrate_source(before).new)) if isinstance(node, ast.Return)]
    assert isinstance(returned.value, ast.Tuple)
    choice, stored = returned.value.elts
    assert isinstance(choice, ast.IfExp)
    news = [ast.unparse(choice.test), ast.unparse(stored)]
    assert "torch.cuda" not in "".join(news)
    assert "get_accelerator" in news[0]
    for machine, devices in (("cuda", ("cuda", "cuda:1", "cpu", "meta")), ("cpu", ("cpu", "meta"))):
        for device in devices:
            for flag in (True, False):
                old = value_of(question, machine, device, flag=flag)
                assert bool(value_of(news[0], machine, device, flag=flag)) == bool(old)
                assert value_of(news[1], machine, device, flag=flag) == [old]
