"""The report of ``anyaccel conformance``: a page for people, and JSON for programs."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from .. import __version__
from .page import Page, PageError, write

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ..testing.outcome import Result
    from ..testing.torch_tests import TorchTest

__all__ = ["Conformance", "write_report"]

_BAD = ("wrong", "crashed", "timed out")
_KINDS = {
    "test_compare_cpu": "results are the CPU's",
    "test_noncontiguous_samples": "tensors with gaps",
    "test_variant_consistency_eager": "ops in place",
    "test_fn_grad": "gradients are the CPU's",
    "test_cpu_gpu_parity": "modules of torch.nn",
}
"""What each of torch's tests checks, by the name that torch gives it."""
_MISSING_KERNEL = re.compile(r"'((?:\w+::)?[\w.]+)'|operator (\w+::[\w.]+)")


@dataclass
class Conformance:
    """What was found about an accelerator.

    Attributes:
        target: the accelerator, as the command line named it.
        device: its device's name.
        members: how each member of the contract fared.
        torch_tests: how each of torch's tests fared; empty when they were not run.
    """

    target: str
    device: str
    members: Sequence[Result]
    torch_tests: Sequence[TorchTest] = field(default_factory=list)

    @property
    def is_wrong(self) -> bool:
        """Whether a member or a test was wrong, crashed or hung; what is refused as the contract asks is not wrong."""
        return any(one.outcome.value in _BAD for one in self.members) or any(
            test.outcome in _BAD for test in self.torch_tests
        )

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            "target": self.target,
            "device": self.device,
            "versions": {"anyaccel": __version__, "torch": version("torch")},
            "members": [{**asdict(one), "outcome": one.outcome.value} for one in self.members],
            "torch_tests": [asdict(test) for test in self.torch_tests],
        }


def write_report(path: Path, found: Conformance) -> None:
    """Write a report, as the file's suffix says.

    Args:
        path: a name that ends in ``.html`` or ``.json``.
        found: what was found.

    Raises:
        PageError: when writing fails.
    """
    if path.suffix == ".html":
        write(path, _page(found))
        return
    try:
        path.write_text(json.dumps(found.as_dict(), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        msg = f"writing the report failed: {error}. Fix: free some space, or choose another path."
        raise PageError(msg) from error


def _page(found: Conformance) -> Page:
    lead = f"Device '{found.device}', torch {version('torch')}, {time.strftime('%Y-%m-%d')}"
    page = Page(f"Conformance of {found.target}", lead)
    page.section("Summary")
    outcomes = ("ok", "unsupported", *_BAD, "skipped")
    rows = [("members of the contract", *_counted([one.outcome.value for one in found.members], outcomes))]
    for kind, meaning in _KINDS.items():
        of_kind = [test.outcome for test in found.torch_tests if test.name.startswith(kind)]
        if of_kind:
            rows.append((f"torch: {meaning}", *_counted(of_kind, outcomes)))
    page.table(("what", *outcomes), rows)
    for outcome in _BAD:
        chosen = [test for test in found.torch_tests if test.outcome == outcome]
        if chosen:
            page.section(f"Torch's tests: {outcome}")
            page.table(("test", "why"), [(test.name, test.why) for test in chosen])
    missing = _missing(found.torch_tests)
    if missing:
        page.section("Kernels that the device lacks", "Named by torch, with the tests that need them.")
        page.table(("kernel", "tests"), [(name, ", ".join(tests)) for name, tests in missing.items()])
    page.section("Members of the contract")
    rows_of_members = [(one.member, one.outcome.value, one.why) for one in found.members]
    page.table(("member", "outcome", "why"), rows_of_members, [one.outcome.value == "ok" for one in found.members])
    for outcome in ("skipped", "ok"):
        chosen = [test for test in found.torch_tests if test.outcome == outcome]
        if chosen:
            page.section(f"Torch's tests: {outcome}")
            page.table(("test", "why", "seconds"), [(test.name, test.why, f"{test.seconds:.2f}") for test in chosen])
    return page


def _counted(outcomes: Sequence[str], columns: Sequence[str]) -> list[str]:
    counts = Counter(outcomes)
    return [str(counts[column]) for column in columns]


def _missing(tests: Sequence[TorchTest]) -> dict[str, list[str]]:
    """Return the tests that were refused because a kernel is missing, by the kernel's name."""
    found: dict[str, list[str]] = {}
    for test in tests:
        if test.outcome == "unsupported":
            named = _MISSING_KERNEL.search(test.why)
            found.setdefault((named[1] or named[2]) if named else "not named", []).append(test.name)
    return dict(sorted(found.items(), key=lambda one: -len(one[1])))
