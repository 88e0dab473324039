"""A question that is stored stays if what depends on it stays, wherever it is stored and however it is read."""

from __future__ import annotations

import pytest

from anyaccel.migrate.source import migrate_source

_STORED = {
    "in a function": "def f(x):\n    flag{kind} = {question}\n    if flag{more}:\n        {code}\n    return x\n",
    "walrus": "def f(x):\n    if (flag := {question}){more}:\n        {code}\n    return x\n",
    "walrus, read later": "def f(x):\n    print((flag := {question}))\n    if flag{more}:\n        {code}\n    return x\n",
    "in a module": "flag{kind} = {question}\ndef f(x):\n    if flag{more}:\n        {code}\n    return x\n",
    "in a module, read there": "x = make()\nflag{kind} = {question}\nif flag{more}:\n    {code}\n",
    "in a class": "class C:\n    flag{kind} = {question}\n    def f(self, x):\n        if self.flag{more}:\n            {code}\n",
    "in a class, read there": "class C:\n    flag{kind} = {question}\n    if flag{more}:\n        {code}\n",
    "in a class, by its name": (
        "class C:\n    flag{kind} = {question}\ndef f(x):\n    if C.flag{more}:\n        {code}\n    return x\n"
    ),
    "in a class, by an object": (
        "class C:\n    flag{kind} = {question}\ndef f(x, state):\n    if state.flag{more}:\n        {code}\n    return x\n"
    ),
    "in an object": (
        "class C:\n    def __init__(self):\n        self.flag{kind} = {question}\n"
        "    def f(self, x):\n        if self.flag{more}:\n            {code}\n        return x\n"
    ),
}
_QUESTIONS = [
    ("torch.cuda.is_available()", "", "flag"),
    ("torch.cuda.is_available()", "", "use_cuda"),
    ("torch.cuda.device_count()", " > 0", "num_gpus"),
    ("torch.cuda.device_count()", " >= 1", "num_gpus"),
    ("torch.cuda.device_count()", " > 0", "cuda_count"),
    ("torch.cuda.device_count()", "", "num_gpus"),
]


@pytest.mark.parametrize("kind", ["", ": int"])
@pytest.mark.parametrize(("question", "more", "name"), _QUESTIONS)
@pytest.mark.parametrize("place", _STORED)
def test_it_stays_if_what_depends_on_it_stays(place: str, question: str, more: str, name: str, kind: str) -> None:
    source = _STORED[place].format(kind=kind, question=question, more=more, code="torch.cuda.get_device_capability()")
    new = migrate_source(f"import torch\n{source}".replace("flag", name), "anyaccel").new
    assert question in new


@pytest.mark.parametrize("kind", ["", ": int"])
@pytest.mark.parametrize("place", [each for each in _STORED if "object" not in each])
def test_it_is_rewritten_with_what_depends_on_it(place: str, kind: str) -> None:
    question = "torch.cuda.is_available()"
    source = _STORED[place].format(kind=kind, question=question, more="", code="x = x.cuda()")
    new = migrate_source(f"import torch\n{source}", "anyaccel").new
    assert question not in new
    assert ".cuda()" not in new
