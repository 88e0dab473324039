"""What holds for all new code, checked on the whole corpus: its calls fit the contract, and it binds no name of the program's."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from anyaccel.accelerator import DeepSpeedAccelerator
from anyaccel.accelerator.cpu_accelerator import CPU_Accelerator
from anyaccel.accelerator.cuda_accelerator import CUDA_Accelerator
from anyaccel.accelerator.xpu_accelerator import XPU_Accelerator
from anyaccel.migrate.source import migrate_source
from anyaccel.migrate.targets import HELPERS, TARGETS

from . import corpus

if TYPE_CHECKING:
    from collections.abc import Iterator

OF_HELPERS = {"device", "text", "index", "function", "otherwise", "args", "options"}
CLASSES = (DeepSpeedAccelerator, CPU_Accelerator, CUDA_Accelerator, XPU_Accelerator)


def new_of(name: str, target: str) -> tuple[ast.Module, ast.Module]:
    migration = corpus.migrated(name, target)
    return ast.parse(migration.old), ast.parse(migration.new)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", corpus.names())
def test_new_code_compiles(name: str, target: str) -> None:
    compile(corpus.migrated(name, target).new, name, "exec", dont_inherit=True)


@pytest.mark.parametrize("name", corpus.names())
def test_a_name_may_be_assigned_from_itself(name: str) -> None:
    lines = corpus.before(name).splitlines(keepends=True)
    for number, line in enumerate(lines):
        changed = re.sub(r"^( *)(\w+) = ([^#]+?)( *#.*)?\n$", r"\1\2 = \2 and (\3)\4\n", line)
        source = "".join([*lines[:number], changed, *lines[number + 1 :]])
        try:
            ast.parse(source)
        except SyntaxError:
            continue  # the line is a part of a statement
        lines[number] = changed
    migrate_source("".join(lines))  # ends, and raises nothing


HEADS = {
    "at the top": "import torch\n",
    "for types": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n",
    "if it is there": "try:\n    import torch\nexcept ImportError:\n    torch = None\n",
    "below": "def f(k):\n    torch.cuda.set_device(k)\nimport torch\n",
    "a part of it": "from torch import cuda\n",
    "under another name": "import torch as t\nfrom torch.cuda import Stream\n",
}
USES = {
    "an annotation": "class A:\n    s: {}.Stream\n",
    "a call": "def g(x):\n    with {}.amp.autocast():\n        return x\n",
}


@pytest.mark.parametrize("first", ["", '"""Words, and import torch."""\n', "#!/bin/python\n"])
@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("head", HEADS)
def test_torch_is_imported_where_the_program_does_it(head: str, use: str, future: str, first: str) -> None:
    cuda = {"a part of it": "cuda", "under another name": "t.cuda"}.get(head, "torch.cuda")
    new = migrate_source(first + future + HEADS[head] + USES[use].format(cuda)).new
    compile(new, head, "exec", dont_inherit=True)
    tree = ast.parse(new)
    assert ast.get_docstring(tree) == ("Words, and import torch." if first.startswith('"') else None)
    if head not in ("a part of it", "under another name"):
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import) and node.names[0].name == "torch"]
        assert len(imports) == 1


def bound(tree: ast.Module) -> Counter[str]:
    names = (node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return Counter(names)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", corpus.names())
def test_new_code_binds_no_name_that_the_program_binds(name: str, target: str) -> None:
    old, new = map(bound, new_of(name, target))
    helpers = OF_HELPERS if target == "torch.accelerator" else set()
    assert {each for each, count in (new - old).items() if each in old and count} <= helpers
    assert set(new) - set(old) <= {"get_accelerator", "i", "i_", "state", "state_", *HELPERS, *helpers}


def calls(tree: ast.Module) -> Iterator[tuple[str, list[ast.expr], list[ast.keyword], bool]]:
    """Yield each call of the contract with its arguments, and whether it is only prepared, by ``functools.partial``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            is_partial = ast.unparse(node.func).endswith("partial") and node.args
            function, args = (node.args[0], node.args[1:]) if is_partial else (node.func, node.args)
            if isinstance(function, ast.Attribute) and ast.unparse(function.value).endswith("get_accelerator()"):
                yield function.attr, args, node.keywords, bool(is_partial)


@pytest.mark.parametrize("name", corpus.names())
def test_calls_of_new_code_fit_the_contract_and_every_accelerator(name: str) -> None:
    old, new = new_of(name, "anyaccel")
    known = Counter(map(str, map(ast.unparse, (node for node in ast.walk(old) if isinstance(node, ast.Call)))))
    for member, args, keywords, is_partial in calls(new):
        has_stars = any(isinstance(each, ast.Starred) for each in args) or any(each.arg is None for each in keywords)
        functions = [getattr(each, member) for each in CLASSES if inspect.isfunction(getattr(each, member, None))]
        assert functions or hasattr(DeepSpeedAccelerator, member) or f"get_accelerator().{member}()" in known
        for function in functions if not has_stars else ():
            signature = inspect.signature(function)
            bind = signature.bind_partial if is_partial else signature.bind
            bind(None, *args, **{str(each.arg): each.value for each in keywords})  # raises TypeError
