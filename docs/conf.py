"""Sphinx's settings: `make docs` builds these pages, and fails on a warning."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))  # the tests, which pull tables from the code

import anyaccel
from tests.docs import generated

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "anyaccel"
author = "the anyaccel maintainers"
project_copyright = author
release = version = anyaccel.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True
exclude_patterns = ["_build"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_default_options = {"members": True, "show-inheritance": True}
nitpick_ignore_regex = [  # others' names, and names that only annotations use
    ("py:.*", r"(torch|abc|collections|contextlib|types|typing|enum|pathlib|importlib|pytest|argparse)\..*"),
    ("py:.*", r"timedelta|[A-Z]\w*|dist\..*|_\w+.*|.*\._\w+.*|optional|Any|None|\.\.\."),
    ("py:.*", r"anyaccel\.op_builder\.(builder|engine|functions|loading|targets|implementations).*"),
    ("py:.*", r"anyaccel\.accelerator\.(named|host).*"),
]
html_theme = "furo"
html_title = f"anyaccel {release}"
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files, html_js_files = ["versions.css"], ["versions.js"]
_SIDEBAR = ("brand", "search", "scroll-start", "navigation", "scroll-end")  # furo's, and a menu of versions
html_sidebars = {"**": [f"sidebar/{part}.html" for part in _SIDEBAR]}
html_sidebars["**"].insert(1, "versions.html")
_SOURCES = os.environ.get("DOCS_SOURCES", "")
html_theme_options = (
    {"source_view_link": _SOURCES, "source_edit_link": _SOURCES.replace("/blob/", "/edit/")} if _SOURCES else {}
)

_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+)([^)#]+)(#[^)]*)?\)")
_ROOT = Path(__file__).parents[1]


def _lead_inside(app: Sphinx, page: str, source: list[str]) -> None:
    """Lead links to the examples' READMEs to their pages here, and show those to folders as their names."""

    def replaced(match: re.Match[str]) -> str:
        text, up, path = match.group(1, 2, 3)
        target = ((_ROOT / "docs" / page).parent / up / path).resolve()
        if target.is_relative_to(_ROOT / "docs") and target.exists():
            return match[0]
        if target.name == "README.md" and target.parent.parent == _ROOT / "examples":
            return f"[{text}](/examples/{target.parent.name}.md)"
        return f"`{text}`" if target.is_dir() and "`" not in text else match[0]

    source[0] = _LINK.sub(replaced, source[0])


def setup(app: Sphinx) -> None:
    """Check the pulled tables, and connect what rewrites links."""
    stale = generated.stale()
    if stale:
        fix = "python -m tests.docs.generated --write"
        msg = f"building the pages failed: got {', '.join(stale)}, older than the code. Fix: {fix}"
        raise RuntimeError(msg)
    app.connect("source-read", _lead_inside)
