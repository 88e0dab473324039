"""Sphinx's settings: `make docs` builds these pages, and fails on a warning."""

from __future__ import annotations

import anyaccel

project = "anyaccel"
author = "the anyaccel maintainers"
project_copyright = author
release = version = anyaccel.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"anyaccel {release}"
