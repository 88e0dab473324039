"""The generated parts of the pages match the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from anyaccel.op_builder.engine import environment as op_environment

from . import generated, served

ROOT = Path(__file__).parents[2]
SOURCES = [file for folder in ("accelerator", "op_builder", "anyaccel") for file in (ROOT / folder).rglob("*.py")]
NATIVE = [file for file in (ROOT / "csrc").rglob("*") if file.suffix in (".cpp", ".h")]


def test_no_page_is_older_than_the_code() -> None:
    assert not generated.stale(), "run python -m tests.docs.generated --write"


def test_every_function_of_colossalais_loaders_is_served() -> None:
    assert not [lacks for _, _, lacks in served.colossalais() if lacks]


def test_keywords_of_deepspeeds_functions_are_taken() -> None:
    not_in_signatures = ("(async)", "(example_tenosr)")  # taken, as tests/async_io shows
    assert not [one for one in served.refused_keywords() if not one.endswith(not_in_signatures)]


def test_the_files_that_bind_deepspeeds_functions_are_read() -> None:
    names = {builder: {*has, *lacks} for builder, has, lacks in served.deepspeeds()}
    assert all(names.values())
    assert {"aio_handle", "aio_read", "aio_handle.is_pinned"} <= names["AsyncIOBuilder"]
    assert {"softmax_<dtype>", "rms_norm"} <= names["InferenceBuilder"]
    assert not [lacks for builder, _, lacks in served.deepspeeds() if lacks and builder == "AsyncIOBuilder"]


def test_no_function_of_deepspeed_drops_out_of_the_table() -> None:
    assert not served.uncounted_files()
    assert not served.unread_functions()
    page = (ROOT / "docs" / "deepspeed.md").read_text()
    assert not [builder for builder in served.LEFT if f"| `{builder}`" not in page]


def test_every_variable_that_is_read_is_in_the_table() -> None:
    table = generated.variables()
    for module, _ in generated.ENVIRONMENTS:
        source = Path(str(module.__file__)).read_text()
        read = re.findall(r'(?:environ\.(?:get|setdefault)|_natural_number)\("(\w+)"', source)
        assert read
        assert not [name for name in read if name not in table]
    assert not [name for name in op_environment.COMPILER_VARIABLES if f"`{name}`" not in table]


def test_troubleshooting_has_the_words_of_the_errors() -> None:
    texts = [node.value for file in SOURCES for node in ast.walk(ast.parse(file.read_text())) if _is_text(node)]
    said = re.sub(r"\s+", " ", " ".join(texts)) + re.sub(
        r'"\s*\n\s*"', "", " ".join(file.read_text() for file in NATIVE)
    )
    headings = re.findall(r"^## (`.+)$", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE)
    assert len(headings) > 10
    missing = [words for heading in headings for words in re.findall(r"`([^`]+)`", heading) if words not in said]
    assert not missing


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
