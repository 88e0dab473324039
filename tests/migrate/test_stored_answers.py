"""A question that is stored stays if what depends on it stays, wherever it is stored and however it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from anyaccel.migrate.files import migrate_files
from anyaccel.migrate.source import migrate_source

if TYPE_CHECKING:
    from pathlib import Path

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
    "in an object, of another name": (
        "class C:\n    def __init__(self):\n        self.flag{kind} = {question}\n"
        "def f(x, state):\n    if state.flag{more}:\n        {code}\n    return x\n"
    ),
    "in a parameter": "def f(x, flag{kind}={question}):\n    if flag{more}:\n        {code}\n    return x\n",
    "returned": (
        "def flag():\n    answer{kind} = {question}\n    return answer\n"
        "def f(x):\n    if flag(){more}:\n        {code}\n    return x\n"
    ),
    "returned by a method": (
        "class C:\n    def flag(self):\n        return {question}\n"
        "    def f(self, x):\n        if self.flag(){more}:\n            {code}\n        return x\n"
    ),
    "returned by a property": (
        "class C:\n    @property\n    def flag(self):\n        return {question}\n"
        "    def f(self, x):\n        if self.flag{more}:\n            {code}\n        return x\n"
    ),
    "under a key": (
        "settings = {{'flag': {question}}}\ndef f(x):\n    if settings['flag']{more}:\n        {code}\n    return x\n"
    ),
    "under a key, set later": (
        "settings = {{}}\nsettings['flag'] = {question}\n"
        "def f(x):\n    if settings['flag']{more}:\n        {code}\n    return x\n"
    ),
    "as a keyword": (
        "def f(x):\n    settings = Settings(flag={question})\n    if settings.flag{more}:\n        {code}\n    return x\n"
    ),
    "passed on": (
        "def g(x, flag{kind}):\n    if flag{more}:\n        {code}\n    return x\ndef f(x):\n    return g(x, {question})\n"
    ),
    "passed on to a method": (
        "class C:\n    def g(self, x, flag{kind}):\n        if flag{more}:\n            {code}\n        return x\n"
        "    def f(self, x):\n        return self.g(x, {question})\n"
    ),
    "passed on to a static method": (
        "class C:\n    @staticmethod\n    def g(x, flag{kind}):\n        if flag{more}:\n            {code}\n        return x\n"
        "    def f(self, x):\n        return self.g(x, {question})\n"
    ),
    "passed on to a class": (
        "class C:\n    def __init__(self, x, flag{kind}):\n        self.flag = flag\n"
        "    def f(self, x):\n        if self.flag{more}:\n            {code}\n        return x\n"
        "def f(x):\n    return C(x, {question})\n"
    ),
    "stored twice": (
        "def f(x):\n    first{kind} = {question}\n    flag = first\n    if flag{more}:\n        {code}\n    return x\n"
    ),
}
_READ = [
    "if not flag:\n    return x\nCODE",
    "if not flag:\n    x = x + 1\nelse:\n    CODE",
    "if flag and x.ndim > 2:\n    CODE",
    "if x.ndim > 2 and flag:\n    CODE",
    "if not flag or x.ndim < 2:\n    return x\nCODE",
    "if bool(flag):\n    CODE",
    "if flag is True:\n    CODE",
    "if flag == True:\n    CODE",
    "if flag is False:\n    return x\nCODE",
    "if flag is not False:\n    CODE",
    "if flag != True:\n    return x\nCODE",
    "if x is None:\n    pass\nelif flag:\n    CODE",
    "while flag:\n    CODE",
    "assert flag\nCODE",
    "for i in x:\n    if not flag:\n        continue\n    CODE",
    "x = CODE if flag else x",
    "x = x if not flag else CODE",
    "x = flag and CODE or x",
    "ok = flag and x.ndim > 2\nif ok:\n    CODE",
]
_FOLLOWED = [each for each in _STORED if each.startswith(("in a function", "walrus", "in a module", "in a class"))]
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
@pytest.mark.parametrize("place", _FOLLOWED)
def test_it_is_rewritten_with_what_depends_on_it(place: str, kind: str) -> None:
    question = "torch.cuda.is_available()"
    source = _STORED[place].format(kind=kind, question=question, more="", code="x = x.cuda()")
    new = migrate_source(f"import torch\n{source}", "anyaccel").new
    assert question not in new
    assert ".cuda()" not in new


_FORMS = [
    ("y.is_cuda", "not y.is_cuda"),
    ("y.device.type == 'cuda'", "y.device.type != 'cuda'"),
    ("'cuda' in str(y.device)", "'cuda' not in str(y.device)"),
    ("torch.cuda.is_available()", "not torch.cuda.is_available()"),
    ("torch.cuda.device_count() > 0", "torch.cuda.device_count() == 0"),
]


@pytest.mark.parametrize("is_negated", [False, True])
@pytest.mark.parametrize("form", _FORMS)
@pytest.mark.parametrize("read", _READ)
@pytest.mark.parametrize("place", ["variable", "global", "field", "attribute"])
def test_it_stays_however_it_is_read(place: str, read: str, form: tuple[str, str], is_negated: bool) -> None:
    question = form[is_negated]
    name = "self.flag" if place in ("field", "attribute") else "flag"
    code = read.replace("flag", f"(not {name})" if is_negated else name).replace(f"not (not {name})", name)
    lines = code.replace("CODE", "torch.cuda.get_device_capability()").split("\n")
    body = "".join(f"        {line}\n" for line in lines)
    source = {
        "variable": f"def f(x, y):\n    for _ in x:\n        flag = {question}\n{body}",
        "global": f"flag = {question}\ndef f(x, y):\n    for _ in x:\n{body}",
        "field": f"class C:\n    flag = {question}\n    def f(self, x, y):\n{body}",
        "attribute": f"class C:\n    def __init__(self, y):\n        self.flag = {question}\n    def f(self, x, y):\n{body}",
    }[place]
    new = migrate_source(f"import torch\n{source}", "anyaccel").new
    assert question.removeprefix("not ") in new


@pytest.mark.parametrize("name", ["has_gpu", "cuda"])  # an attribute called cuda is a site of its own
def test_it_stays_if_another_file_asks_a_property_before_what_stays(tmp_path: Path, name: str) -> None:
    manager, trainer = tmp_path / "manager.py", tmp_path / "trainer.py"
    manager.write_text(
        "import torch\nclass Manager:\n    def __init__(self):\n        self._there = torch.cuda.is_available()\n"
        f"    @property\n    def {name}(self):\n        return self._there\n"
    )
    trainer.write_text(
        "import torch\nfrom manager import Manager\nclass Trainer:\n    def __init__(self):\n        self.manager = Manager()\n"
        f"        self.kind = 'cuda' if self.manager.{name} else 'cpu'\n"
    )
    (asked,) = [each for each in migrate_files([manager, trainer], "anyaccel")[0].sites if each.line == 4]
    assert asked.reason == f"trainer.py:6 tests '{name}' before code for CUDA only; decide on both together"
