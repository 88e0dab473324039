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
