"""Writes tables generated from the code into the pages: ``python -m tests.docs.generated --write``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import torch

from anyaccel import CPU_Accelerator, CUDA_Accelerator, DeepSpeedAccelerator, TorchAccelerator, XPU_Accelerator
from anyaccel.accelerator import environment as accelerator_environment
from anyaccel.accelerator.torch_accelerator import NEEDED, OWN
from anyaccel.distributed import environment as distributed_environment
from anyaccel.migrate.targets import TARGETS
from anyaccel.op_builder.engine import environment as op_environment
from anyaccel.op_builder.kernel_loader import loader_class, loader_names
from tests.sass import gate

from . import commands, errors, rules, served

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

DOCS = Path(__file__).parents[2] / "docs"
ENVIRONMENTS: tuple[tuple[ModuleType, str], ...] = (
    (accelerator_environment, "accelerators"), (op_environment, "building ops"), (distributed_environment, "shm"),
)  # fmt: skip
LATER_ON_XPU = {
    "create_graph", "capture_to_graph", "replay_graph", "graph_pool_handle", "make_graphed_callables", "MemPool",
    "use_mem_pool", "memory_snapshot", "utilization",
}  # fmt: skip
"""What ``torch.xpu`` of torch 2.10 lacks; the page says it above the table, which is for torch 2.13."""
_BY_NAME = {"Stream": ("Stream",), "Event": ("Event",)}
_OTHERWISE = {"communication_backend_name": "a backend of `torch.distributed` that is registered for the device"}
_ROW = re.compile(r"^(\S.*?) {2,}(\S.*)$", re.MULTILINE)


def variables() -> str:
    """Return the tables in the docstrings of the files that read the environment, as one table."""
    lines = ["", "| variable | meaning | read for |", "|---|---|---|"]
    for module, purpose in ENVIRONMENTS:
        for row, meaning in _ROW.findall(str(module.__doc__)):
            names = op_environment.COMPILER_VARIABLES if row == "LIBRARY_PATH, …" else row.split(", ")
            shown = ", ".join(f"`{name}`" if name != "…" else name for name in names)
            lines.append(f"| {shown} | {meaning.replace('``', '`')} | {purpose} |")
    return "\n".join([*(line for line in lines if "====" not in line), "", ""])


def members() -> str:
    """Return the table of the contract's members by devices."""
    accelerators = CPU_Accelerator(), CUDA_Accelerator(), XPU_Accelerator()
    target = TARGETS["torch.accelerator"]
    lacked = set() if hasattr(torch.xpu, "graph") else LATER_ON_XPU
    lines = [
        "",
        "| member | cpu | cuda | xpu | another device needs | torch.accelerator |",
        "|---|---|---|---|---|---|",
    ]
    for name in [name for name in vars(DeepSpeedAccelerator) if not name.startswith("_")]:
        packages = mock.patch.dict(sys.modules, pynvml=mock.Mock(), pyzes=mock.Mock())  # installed here or not
        with packages, mock.patch.object(torch._C, "_nccl_version", create=True):
            in_cpu, in_cuda, in_xpu = (accelerator.supports(name) for accelerator in accelerators)
        supported = ["yes" if one else "raises" for one in (in_cpu, in_cuda, in_xpu != (name in lacked))]
        needs = _needs(name)
        equivalent = target.function(name, "") or ""
        shown = f"`{equivalent}`" if equivalent else ""
        lines.append(f"| `{name}` | {' | '.join(supported)} | {needs} | {shown} |")
    return "\n".join([*lines, "", ""])


def _needs(member: str) -> str:
    """Return what a device's module must have for a member, and which other members it calls."""
    calls = getattr(getattr(TorchAccelerator, member, None), "__torch_calls__", ())
    functions = [f"`torch.<name>.{call.format('<NAME>')}`" for call in (*calls, *_BY_NAME.get(member, ()))]
    others = " and ".join(f"the member `{other}`" for other in NEEDED.get(member, ()))
    own = f"`torch.<name>.{OWN[member]}`" if member in OWN else ""
    return ", ".join(filter(None, [*functions, " or ".join(filter(None, (own, others)))])) or _OTHERWISE.get(member, "")


def loaders() -> str:
    """Return the table of loaders: what each loads, and its implementations, best first."""
    lines = ["", "| loader | what it loads | implementations, with their priorities |", "|---|---|---|"]
    for loader in map(loader_class, loader_names()):
        known = sorted(loader.REGISTRY, key=lambda one: -one.priority)
        listed = ", ".join(f"`{one.name}` {one.priority}" for one in known)
        lines.append(f"| `{loader.__name__}` | {str(loader.__doc__).rstrip('.').replace('``', '`')} | {listed} |")
    return "\n".join([*lines, "", ""])


def machine_code() -> str:
    """Return the table of machine code for sm_90: how many kernels reach each target, and the facts by op."""
    return gate.summary(gate.read_table("sm_90")[1])


def builders_of_deepspeed() -> str:
    """Return the table of deepspeed's functions, by its builders."""
    return served.table("builder", served.deepspeeds())


def loaders_of_colossalai() -> str:
    """Return the table of Colossal-AI's functions, by its loaders."""
    return served.table("loader", served.colossalais())


def _between(begin: str, end: str, text: Callable[[], str]) -> Callable[[str], str]:
    place = re.compile(rf"(<!-- {begin}: .+? -->\n).*(<!-- {end} -->)", re.DOTALL)
    return lambda page: place.sub(lambda match: match[1] + text() + match[2], page)


WRITERS: dict[Path, Callable[[str], str]] = {
    rules.PAGE: rules.written,
    DOCS / "cli.md": _between("commands", "end of commands", commands.page),
    DOCS / "environment.md": _between("variables", "end of variables", variables),
    DOCS / "contract.md": _between("members", "end of members", members),
    DOCS / "errors.md": _between("errors", "end of errors", errors.page),
    DOCS / "benchmarks.md": _between("machine code", "end of machine code", machine_code),
    DOCS / "colossalai.md": _between("functions", "end of functions", loaders_of_colossalai),
    DOCS / "deepspeed.md": _between("functions", "end of functions", builders_of_deepspeed),
    DOCS / "ops.md": _between("loaders", "end of loaders", loaders),
}


def stale() -> list[str]:
    """Return the pages that do not match the code."""
    return [page.name for page, written in WRITERS.items() if written(page.read_text()) != page.read_text()]


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("expected --write")
    for page, written in WRITERS.items():
        page.write_text(written(page.read_text()))
