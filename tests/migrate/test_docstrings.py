"""Docstrings that name CUDA are corrected whatever their quotes are, and wherever in them CUDA is named."""

from __future__ import annotations

import ast

import pytest

from anyaccel.migrate.source import migrate_source

_TEXTS = {
    "CUDA if available": "The accelerator if available",
    "CUDA if available, else CPU.": "The accelerator if available, else CPU.",
    "Get cuda when available": "Get the accelerator when available",
    "`cuda`": "the name of the accelerator",
    "`cuda` or `cpu`": "the name of the accelerator or `cpu`",
    "One of `cpu`, `cuda`": "One of `cpu`, the name of the accelerator",
    "(CUDA or CPU)": "(accelerator or CPU)",
    "needs CUDA": "needs CUDA",
    "cuda": "cuda",
}


@pytest.mark.parametrize("quote", ['"""', "'''", '"', "'"])
@pytest.mark.parametrize("prefix", ["", "r", "u", "R"])
@pytest.mark.parametrize(("text", "expected"), _TEXTS.items())
def test_what_a_function_returns(text: str, expected: str, prefix: str, quote: str) -> None:
    choice = 'return "cuda" if torch.cuda.is_available() else "cpu"'
    source = f"import torch\n\ndef a_device():\n    {prefix}{quote}{text}{quote}\n    {choice}\n"
    tree = ast.parse(migrate_source(source, "anyaccel").new)
    assert ast.get_docstring(tree.body[-1]) == expected  # type: ignore[arg-type]  # a function


def test_a_default_is_corrected_in_both_languages_of_its_entry() -> None:
    told = 'device: Where, default "cuda"\n            设备默认为"cuda"\n        path: 默认为"cuda"\n    '
    done = migrate_source(
        f'def f(x, device="cuda", path=""):\n    """Args:\n        {told}"""\n    x.to(device)\n', "anyaccel"
    )
    assert done.new.count("default get_accelerator().device_name()\n") == 1
    assert '默认为get_accelerator().device_name()\n        path: 默认为"cuda"' in done.new


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_docstring_stays_if_the_question_about_cuda_does(is_kept: bool) -> None:
    asked = "        if torch.cuda.is_available():\n            return torch.device('cuda')\n"
    first = f"    if x.startswith('cuda'):\n{asked}        raise RuntimeError('cuda was asked for, but CUDA is not available')\n"
    chosen = f"    try:\n{asked}    except AssertionError:\n        pass\n    return torch.device('cpu')\n"
    source = f'import torch\n\n\ndef f(x):\n    """Use cuda if available."""\n{first * is_kept}{chosen}'
    assert ("the accelerator if available" in migrate_source(source).new) is not is_kept


def test_a_default_that_is_all_that_a_line_says_is_corrected() -> None:
    told = 'device : torch.device("cuda:0")\n    other : a device such as "cuda:0"\n    '
    start = 'def __init__(self, device=torch.device("cuda:0"), other=""):\n        pass\n'
    source = f'class A:\n    """One.\n\n    {told}"""\n\n    {start}'
    new = migrate_source(f"import torch\n\n\n{source}").new
    assert "device : torch.device(get_accelerator().device_name(0))\n" in new
    assert 'other : a device such as "cuda:0"\n' in new
