"""Leaves ``setup.py`` as it is: it runs before what its package needs is installed, and builds for other machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .site import SiteOutcome

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["keep_build_scripts"]

_SETUP = ("setuptools.setup", "distutils.core.setup", "skbuild.setup")
_OF_BUILD = "a build script, which runs before its package's requirements are installed"


def keep_build_scripts(plan: Plan) -> None:
    """Leave every site of a module that calls ``setuptools.setup()``."""
    if any(plan.view.name(each.func) in _SETUP for each in plan.view.of(cst.Call)):
        for node in list(plan.decisions):
            plan.reconsider(node, _OF_BUILD, SiteOutcome.LEFT)
