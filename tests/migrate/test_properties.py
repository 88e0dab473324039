"""Properties for any program: it stays valid Python, a second run changes nothing, and only the sites change."""

from __future__ import annotations

import ast
import difflib
import re
import textwrap
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anyaccel.migrate.site import SiteOutcome
from anyaccel.migrate.source import Migration, migrate_source

from . import corpus

IMPORTS = [
    "import torch",
    "import torch.cuda",
    "import torch.cuda as tc",
    "from torch import cuda",
    "import os  # first",
]
CALLS = ["torch.cuda.synchronize({a})", "tc.empty_cache()", "cuda.current_stream().wait_stream(tc.Stream())"]
VALUES = [
    "x.cuda({a})",
    "x.to( 'cuda' )",
    'torch.zeros(2,device = f"cuda:{{{a}}}")',
    "(x.cuda().float() + y.cuda( {a} ))",
    "torch.cuda.FloatTensor([1,{a}])",
    "x.is_cuda",
    "torch.device('cuda' if torch.cuda.is_available() else 'cpu')",
    "'cuda'",
    "x.pin_memory()",
    "torch.cuda.get_device_capability({a})",
    "[ t.cuda() for t in x ]",
    "lambda t : t.cuda( )",
]
FRAMES = [
    "{value}",
    "y={value}",
    "y = {value}  # kept",
    "# above\ny = (\n    {value},  # inside\n)",
    "if {value} :\n    y = {value}\nelse:\n    pass",
    "with torch.cuda.stream(s) as c :\n\ty = {value}",
    "def f(a = {value}) :\n\n    return {value}",
    "assert {value}, 'text'",
    "print({value}); y = {value}",
]


@st.composite
def programs(draw: st.DrawFn) -> str:
    argument = st.sampled_from(["0", "rank", "args.gpu", "device", "thing", "i % 2"])

    def value() -> str:
        return draw(st.sampled_from(VALUES)).format(a=draw(argument))

    lines = draw(st.lists(st.sampled_from(IMPORTS), max_size=4, unique=True))
    for _ in range(draw(st.integers(0, 6))):
        if draw(st.booleans()):
            lines.append(draw(st.sampled_from(CALLS)).format(a=draw(argument)))
        else:
            frame = draw(st.sampled_from(FRAMES))
            for _ in range(frame.count("{value}")):
                frame = frame.replace("{value}", value(), 1)
            lines.append(frame)
    return "\n".join([*lines, draw(st.sampled_from(["", "\n", "\n\n# end\n"]))])


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(programs())
def test_any_program(source: str) -> None:
    migration = migrate_source(source)
    ast.parse(migration.new)
    assert migrate_source(migration.new).new == migration.new
    _check_untouched(migration)
    _check_counts(migration)


NAMES = ["device", "rank", "device_type", "gpu", "x", "model", "name", "cuda"]
TEXTS = ["cuda", "cuda:0", "cuda:1", "cpu", "nccl"]


@st.composite
def mutants(draw: st.DrawFn) -> str:
    """A case of the corpus with statements removed, duplicated and moved, and with other names and texts."""
    statements = draw(st.sampled_from(_statements()))
    kept = draw(st.lists(st.sampled_from(statements), min_size=1, max_size=8))
    text = "import torch\nimport torch.distributed as dist\n" + "\n".join(kept) + "\n"
    for words, pattern in ((NAMES, r"(?<![.\w'\"]){}(?=[\s,).:=\]])"), (TEXTS, "(?<=['\"]){}(?=['\"])")):
        old, new = draw(st.sampled_from(words)), draw(st.sampled_from(words))
        text = re.sub(pattern.format(re.escape(old)), new, text)
    return text


@cache
def _statements() -> list[list[str]]:
    """The statements of every case, including those in functions, separately."""
    found = []
    for name in corpus.names():
        source = corpus.before(name)
        body = ast.parse(source).body
        inner = [each for node in body for each in getattr(node, "body", ()) if isinstance(node, ast.FunctionDef)]
        texts = [ast.get_source_segment(source, node, padded=True) or "" for node in (*body, *inner)]
        found.append([textwrap.dedent(text) for text in texts if "return" not in text or text.startswith("def ")])
    return found


def _is_python(source: str) -> bool:
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def check_mutant(source: str) -> None:
    for target in ("anyaccel", "torch.accelerator"):
        migration = migrate_source(source, target)
        ast.parse(migration.new)
        again = migrate_source(migration.new, target)
        assert again.new == migration.new
        assert migration.passed_over == ()
        assert again.passed_over == ()


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(mutants().filter(_is_python))
def test_any_mutant_of_the_corpus(source: str) -> None:
    check_mutant(source)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(mutants().filter(_is_python))
def test_many_mutants_of_the_corpus(source: str) -> None:
    check_mutant(source)


def _check_untouched(migration: Migration) -> None:
    """Lines without a rewritten site are unchanged and in order; new lines without a site are imports."""
    touched = {
        line
        for site in migration.sites
        if site.outcome is SiteOutcome.REWRITTEN
        for line in range(site.line, site.line + site.code.count("\n") + 1)
    }
    old = [(number, line) for number, line in enumerate(migration.old.splitlines(), 1) if line.strip()]
    new = [line for line in migration.new.splitlines() if line.strip()]
    matcher = difflib.SequenceMatcher(None, [line for _, line in old], new, autojunk=False)
    for kind, start, end, new_start, new_end in matcher.get_opcodes():
        if kind in ("replace", "delete"):
            assert {number for number, _ in old[start:end]} <= touched
        if kind == "insert":
            assert all(line.startswith(("import ", "from ")) for line in new[new_start:new_end])


def _check_counts(migration: Migration) -> None:
    """Every mention of CUDA's module, method or device is in a site, whatever its outcome."""
    marks = ["torch.cuda.", ".cuda(", "'cuda'", ".is_cuda"]
    marks += [mark for mark, line in (("tc.", IMPORTS[2]), ("cuda.current", IMPORTS[3])) if line in migration.old]
    for number, line in enumerate(migration.old.splitlines(), 1):
        code = line.split("#")[0]
        if any(mark in code for mark in marks):
            assert any(site.line <= number <= site.line + site.code.count("\n") for site in migration.sites), line
