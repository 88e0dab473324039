"""Options that take a device, ``--device`` with its choices, and rows of tables of devices: ``Row(name="xpu", …)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .nodes import text_of

if TYPE_CHECKING:
    from .source_view import SourceView

__all__ = ["choices_of", "is_default_of_option", "names_of_row"]

_KEYS = ("name", "kind", "type", "label", "id")


def choices_of(call: cst.Call) -> set[str]:
    """Return the texts among an option's choices. Argparse does not check its own default."""
    given = next((each.value for each in call.args if each.keyword and each.keyword.value == "choices"), None)
    listed = given.elements if isinstance(given, cst.List | cst.Tuple | cst.Set) else ()
    return {text_of(each.value) or "" for each in listed}


def is_default_of_option(view: SourceView, element: cst.DictElement) -> bool:
    """Return whether a value is the default of an option for a device: ``{"name": "--rl_device", "default": "cuda:0"}``."""
    beside = getattr(view.parent(element), "elements", ())
    named = {text_of(each.key): text_of(each.value) or "" for each in beside if isinstance(each, cst.DictElement)}
    name = named.get("name", "")
    return text_of(element.key) == "default" and "choices" not in named and name.startswith("-") and "device" in name


def names_of_row(call: cst.Call) -> set[str]:
    """Return what a row of a table is called."""
    return {text_of(each.value) or "" for each in call.args if each.keyword and each.keyword.value in _KEYS}
