"""The tool's self-check: every mention of CUDA is in a site, or reported."""

from __future__ import annotations

import pytest

from anyaccel.migrate.self_check import passed_over
from anyaccel.migrate.source import migrate_source

from . import corpus


@pytest.mark.parametrize(
    ("code", "tokens"),
    [
        ("torch.cuda.x()", [(1, 7, ".cuda")]),
        ("x = 1\ny = x.cuda()", [(2, 7, ".cuda")]),
        ("f('cuda:9x')", [(1, 3, "'cuda:9x'")]),
        ("f('my nccl', is_nccl())", [(1, 3, "'my nccl'")]),
        ("dist.Backend.NCCL", [(1, 14, ".NCCL")]),
        ("# torch.cuda", []),
        ('"""cuda\nnccl"""', []),
        ("from .cuda import x", []),
        ("import torch.cuda", [(1, 14, ".cuda")]),
        ("barracuda.x = cuda", []),
    ],
)
def test_what_a_site_must_cover(code: str, tokens: list[tuple[int, int, str]]) -> None:
    assert [(each.line, each.column, each.text) for each in passed_over(code + "\n", ())] == tokens


@pytest.mark.parametrize("name", corpus.names())
def test_the_corpus_is_understood(name: str) -> None:
    assert corpus.migrated(name).passed_over == ()


@pytest.mark.parametrize("place", range(3))
def test_a_site_that_is_lost_is_noticed(place: int) -> None:
    source = "import torch\nx = y.cuda()\ntorch.cuda.synchronize()\nz = 'cuda:{}{}'\n"
    sites = migrate_source(source).sites
    kept = [site for site in sites if site.line != place + 2]
    assert [each.line for each in passed_over(source, kept)] == [place + 2]


def test_a_site_of_several_lines_in_a_block_is_covered_to_its_end() -> None:
    """A site's code does not have the indentation of its block."""
    source = "import torch\nclass C:\n    def f(self):\n        x = [torch.round(\n            k).float().cuda() for k in y]\n"
    assert migrate_source(source).passed_over == ()
    assert [each.text for each in passed_over(source, ())] == [".cuda"]
