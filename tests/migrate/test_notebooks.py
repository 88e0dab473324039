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
    assert [error.cell for error in done.unread] == [3]
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


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["%%time\nmodel = load().cuda()"], ["%%time\nfrom anyaccel import get_accelerator\n"]),
        (
            ["%%capture\n!pip install torch", "model = load().cuda()"],
            ["%%capture", "from anyaccel import get_accelerator\n"],
        ),
        (["# anyaccel-cell 7\nx = 1", "y = x.cuda()"], ["# anyaccel-cell 7\nx = 1", "from anyaccel"]),
        (["!pip install x\nmodel = model.cuda()  # on the GPU?\nmodel?"], ["from anyaccel"]),
    ],
)
def test_the_import_is_where_ipython_runs_it(cells: list[str], expected: list[str]) -> None:
    new = json.loads(migrate_notebook(notebook(*cells)).new)
    texts = ["".join(cell["source"]) for cell in new["cells"][1:]]
    assert all(text.startswith(start) for text, start in zip(texts, expected, strict=True)), texts
    assert sum(text.count("import get_accelerator") for text in texts) == 1
    assert not any(".cuda()" in text for text in texts)


@pytest.mark.parametrize("magic", ["!pip install flash-attn", "%env USE_FLASH=1", "!nvidia-smi"])
def test_a_question_before_a_magic_is_reported(magic: str) -> None:
    text = notebook(f"import torch\nif torch.cuda.is_available():\n    {magic}")
    done = migrate_notebook(text)
    assert done.new == text
    assert [site.outcome for site in done.sites] == [SiteOutcome.REPORTED]


@pytest.mark.parametrize("cell", ["%timeit x.cuda()", "out = %timeit -o y.cuda()", "%%wandb\nmodel.cuda()"])
def test_code_after_a_magic_is_said_not_to_be_understood(cell: str) -> None:
    assert [each.text for each in migrate_notebook(notebook("import torch", cell)).passed_over] == [".cuda"]


@pytest.mark.parametrize("cell", ["%%bash\npython -c 'x.cuda()'", "!python -c 'x.cuda()'", '%%HTML\n<b>"cuda</b>'])
def test_commands_and_other_languages_are_nothing_to_understand(cell: str) -> None:
    assert migrate_notebook(notebook("import torch", cell)).passed_over == ()


@pytest.mark.parametrize(
    "metadata", [None, {"language_info": None}, {"kernelspec": "python3"}, {"kernelspec": {"language": 3}}]
)
def test_metadata_may_be_anything(metadata: object) -> None:
    content = json.loads(notebook("x = x.cuda()"))
    content["metadata"] = metadata
    done = migrate_notebook(json.dumps(content))
    assert (done.new != done.old) == (metadata is None or "language" not in str(metadata) or "None" in str(metadata))


def test_a_cell_without_a_source_is_empty() -> None:
    content = json.loads(notebook("", "x = x.cuda()"))
    del content["cells"][1]["source"]
    assert "get_accelerator" in migrate_notebook(json.dumps(content)).new
