"""Notebooks: all cells are one program; magics and outputs do not change."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anyaccel.migrate.notebooks import migrate_notebook
from anyaccel.migrate.site import SiteOutcome, SourceError


def notebook(*cells: str, as_list: bool = True, **extra: Any) -> str:
    made = [
        {
            "cell_type": "code",
            "execution_count": 1,
            "metadata": {},
            "outputs": [{"name": "stdout", "text": ["cuda\n"]}],
            "source": cell.splitlines(keepends=True) if as_list else cell,
        }
        for cell in cells
    ]
    made.insert(0, {"cell_type": "markdown", "metadata": {}, "source": ["# Train with x.cuda()"]})
    content = {
        "cells": made,
        "metadata": {"language_info": {"name": "python"}, **extra},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def sources(text: str) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("as_list", [True, False])
def test_names_of_one_cell_are_known_in_the_next(as_list: bool) -> None:
    before = notebook(
        "import torch.cuda as tc\nimport torch", "tc.synchronize()\nx = torch.ones(1).cuda()", as_list=as_list
    )
    done = migrate_notebook(before)
    assert sources(done.new) == [
        "import torch\nfrom anyaccel import get_accelerator",
        "get_accelerator().synchronize()\nx = torch.ones(1).to(get_accelerator().device_name())",
    ]
    assert migrate_notebook(done.new).new == done.new


def test_magics_stay_where_they_are() -> None:
    cell = "%matplotlib inline\n!pip install x \\\n  y\nfiles = !ls\nif True:\n    %time x = y.cuda()\n    y = y.cuda()\ny.cuda?"
    done = migrate_notebook(notebook("%%time\nimport torch\ny = torch.ones(1)", cell, "%%bash\necho torch.cuda"))
    first, second, third = sources(done.new)
    assert first == "%%time\nimport torch\nfrom anyaccel import get_accelerator\ny = torch.ones(1)"
    assert second == cell.replace("    y = y.cuda()", "    y = y.to(get_accelerator().device_name())")
    assert third == "%%bash\necho torch.cuda"


def test_everything_else_is_byte_identical() -> None:
    before = notebook("import torch\nx = torch.ones(1).cuda()  # größer", title="träge")
    done = migrate_notebook(before)
    changed = [line for line in done.new.splitlines() if line not in before.splitlines()]
    assert [line.strip() for line in changed] == [
        '"from anyaccel import get_accelerator\\n",',
        '"x = torch.ones(1).to(get_accelerator().device_name())  # größer"',
    ]
    assert migrate_notebook(notebook("x = 1")).new == notebook("x = 1")


def test_sites_name_their_cell_and_its_line() -> None:
    done = migrate_notebook(notebook("import torch\nx = 1", "y = 2\nif y == 'cuda':\n    pass"))
    (site,) = [site for site in done.sites if site.outcome is SiteOutcome.REPORTED]
    assert (site.cell, site.line) == (3, 2)


def test_a_broken_cell_stops_no_other() -> None:
    done = migrate_notebook(notebook("import torch", "x = (", "y = torch.ones(1).cuda()"))
    assert [error.line for error in done.unread] == [3]
    assert sources(done.new)[1:] == ["x = (", "y = torch.ones(1).to(get_accelerator().device_name())"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cells": 1}', '{"cells": [1]}', "{"])
def test_what_is_no_notebook_is_refused(text: str) -> None:
    with pytest.raises(SourceError, match="reading a notebook failed"):
        migrate_notebook(text)


def test_another_language_is_left() -> None:
    text = notebook("x <- 'cuda'").replace('"python"', '"R"')
    assert migrate_notebook(text).new == text


@pytest.mark.parametrize("indent", [1, 3, None])
@pytest.mark.parametrize("as_list", [True, False])
def test_all_but_the_sources_that_change_stays_to_the_byte(indent: int | None, as_list: bool) -> None:
    content = json.loads(notebook("import torch\nx = 'ü'\nx = y.cuda()", "print('ü')", as_list=as_list))
    output = {"text": ["1.50", 1e-7], "image": "ü", "empty": [], "nested": {"source": ["x.cuda()\n"]}}
    content["cells"][1]["outputs"] = [output]
    before = (
        json.dumps(content, indent=indent, ensure_ascii=False).replace("1e-07", "1.0E-7").replace('"ü"', '"\\u00fc"')
    )
    after = migrate_notebook(before).new
    assert sources(after)[0] == (
        "import torch\nfrom anyaccel import get_accelerator\nx = 'ü'\nx = y.to(get_accelerator().device_name())"
    )
    start, end = after.index("import torch"), after.index("device_name())")
    assert "1.0E-7" in after
    assert before.startswith(after[:start])
    assert before.endswith(after[end + len("device_name())") :])
