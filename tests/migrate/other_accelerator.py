"""Compares a migrated function on another accelerator with what it did on CUDA, and without: it must do one of the two.

A function that does a part of one and a part of the other is ported by half. What the tool has reported is for a person, so
modules with a report are not compared.
"""

from __future__ import annotations

from anyaccel.migrate.site import SiteOutcome
from anyaccel.migrate.source import migrate_source

from .without_cuda import outcomes

__all__ = ["half_ported"]

_COMMANDS = ("synchronize", "empty_cache", "set_device")
_BACKENDS = {"cuda": "nccl", "xpu": "xccl"}
_OF_NO_INTEREST = ("print", "call accelerator.", "call logging.")
"""What is shown and asked: texts change, and the contract has other names for some questions."""


def half_ported(source: str, seed: int) -> dict[str, str]:
    """Return the functions of a module that do on another accelerator neither what CUDA nor what a CPU did before.

    So are those that do something else on CUDA than before.
    """
    done = migrate_source(source)
    if any(site.outcome is SiteOutcome.REPORTED for site in done.sites):
        return {}
    on_cuda = outcomes(source, is_new=False, seed=seed, machine="cuda")
    without = outcomes(source, is_new=False, seed=seed)
    new_on_cuda = outcomes(done.new, is_new=True, seed=seed, machine="cuda")
    on_other = outcomes(done.new, is_new=True, seed=seed, machine="xpu")
    found = {}
    for name in on_cuda:
        old, new = (_plain(each[name], "cuda") for each in (on_cuda, new_on_cuda))
        other = _plain(on_other[name], "xpu")
        if new != old:
            found[name] = f"on CUDA: {old} -> {new}"
        elif other not in (old, _plain(without[name], "cuda")):
            found[name] = f"CUDA: {old}; another accelerator: {other}"
    return found


def _plain(events: list[str] | None, device: str) -> list[str] | None:
    """Return events with the same words for the device and its backend."""
    if events is None:
        return None
    kept = (each for each in events if not each.startswith(_OF_NO_INTEREST) and "GradScaler" not in each)
    own = (each for each in kept if not each.startswith("command ") or each.split()[1] in _COMMANDS)
    return [each.replace(device, "DEVICE").replace(_BACKENDS[device], "BACKEND") for each in own]
