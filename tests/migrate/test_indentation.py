"""Lines that begin with tabs and spaces, which LibCST would write with spaces."""

from __future__ import annotations

import pytest

from anyaccel.migrate.indentation import with_indentation
from anyaccel.migrate.source import migrate_source

PROGRAM = """
class Trainer:
    def run(self, steps):
        for step in range(steps):
            x = torch.zeros(step){first}
{indentation}y = x{second}
{indentation}for each in y:
                self.see(each)  # kept
            self.see(y)
        return y
"""
MIXED = " " * 7 + "\t" + " " * 4
MOVED = ".to(get_accelerator().device_name())"


@pytest.mark.parametrize(("first", "second"), [(".cuda()", ""), ("", ".cuda()"), (".cuda()", ".cuda()")])
def test_it_stays_beside_and_in_rewritten_lines(first: str, second: str) -> None:
    before = PROGRAM.format(indentation=MIXED, first=first, second=second)
    after = PROGRAM.format(
        indentation=MIXED, first=first.replace(".cuda()", MOVED), second=second.replace(".cuda()", MOVED)
    )
    imports = "import torch\nfrom anyaccel import get_accelerator\n"
    assert migrate_source("import torch\n" + before).new == imports + after


def test_it_goes_where_it_would_make_another_program() -> None:
    source = "if a:\n\tb\n        c\n"  # Python refuses it
    assert with_indentation(source, "if a:\n    b\n    c\n", "if a:\n    d\n    c\n") == "if a:\n    d\n    c\n"
