"""The table of facts for each architecture, compared with the code that NVRTC compiles here."""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from anyaccel.op_builder.cuda.compatibility import release_of
from anyaccel.op_builder.cuda.device_code import device_code_recipe
from anyaccel.op_builder.engine import environment
from anyaccel.op_builder.engine.build import ensure_built
from anyaccel.op_builder.engine.cache import open_cache
from anyaccel.op_builder.engine.toolchains.nvrtc import choose_nvrtc, probe_nvrtc
from anyaccel.op_builder.table import OPS

from .facts import TARGET, Facts, facts_of, is_streaming, missed, regressed
from .listing import parse_listing, parse_usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anyaccel.op_builder.op import Op

__all__ = ["Table", "compared", "measured", "read_table", "release", "summary", "unavailable", "write_table"]

HERE = Path(__file__).parent
ARCHITECTURES = ("sm_90", "sm_80", "sm_100", "sm_120")
_MADE_BY = "# NVRTC "
_TARGET_ROW = ("target", "of every streaming kernel")

Table = dict[tuple[str, str], Facts]
"""The facts of every kernel, by op and instance."""


def _tool(name: str) -> Path | None:
    """Return the path of pip's nvdisasm or cuobjdump."""
    spec = importlib.util.find_spec("nvidia")
    folders = spec.submodule_search_locations if spec is not None else None
    found = sorted(path for folder in folders or () for path in Path(folder).glob(f"*/bin/{name}"))
    return found[-1] if found else None


def unavailable() -> str:
    """Return why the machine code cannot be read here; empty when it can."""
    if probe_nvrtc().tool is None:
        return f"no NVRTC: {probe_nvrtc().detail}"
    lacking = [name for name in ("nvdisasm", "cuobjdump") if _tool(name) is None]
    return f"no {' and '.join(lacking)}: pip install nvidia-cuda-nvdisasm nvidia-cuda-cuobjdump" if lacking else ""


def release() -> str:
    """Return NVRTC's release, such as ``13.5``: another release generates other machine code."""
    return "{}.{}".format(*release_of(choose_nvrtc().version))


def _said(name: str, *arguments: str) -> str:
    tool = _tool(name)
    assert tool is not None
    path = os.pathsep.join([str(tool.parent), os.environ["PATH"]])  # cuobjdump looks for nvdisasm
    command = [tool, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "PATH": path}).stdout


def measured(op: Op, architecture: str) -> Table:
    """Compile an op's kernels, or take them from the cache, and return their facts."""
    entry = ensure_built(device_code_recipe(op, architecture), open_cache(environment.cache_dir()))
    kernels = parse_listing(_said("nvdisasm", "-c", str(entry.binary)))
    usages = parse_usage(_said("cuobjdump", "-res-usage", str(entry.binary)))
    symbols = entry.facts["symbols"]
    return {
        (op.name, name): facts_of(name, architecture, kernels[symbol], usages[symbol])
        for name, symbol in ((name, symbols[f"run<{name}>"]) for name in op.kernels)
    }


def compared(expected: Table, found: Table) -> list[str]:
    """Return one line for each fact that is worse than expected and misses the target, or is not in the table."""
    lines = []
    for (op, kernel), now in found.items():
        before = expected.get((op, kernel))
        if before is None:
            lines.append(f"{op}: {kernel} is not in the table")
            continue
        lines += [
            f"{op}: {kernel}: {name} was {getattr(before, name) or 'none'} and is {getattr(now, name)}"
            for name in regressed(before, now, kernel)
        ]
    return lines


def read_table(architecture: str, folder: Path = HERE) -> tuple[str, Table]:
    """Return a table, and the release of NVRTC that it was made with."""
    first, _, rest = (folder / f"{architecture}.csv").read_text(encoding="utf-8").partition("\n")
    table = {}
    for row in csv.DictReader(io.StringIO(rest)):
        values = [row[name] if name == "emulated" else int(row[name]) for name in Facts._fields]
        table[row["op"], row["kernel"]] = Facts(*values)  # type: ignore[arg-type]
    assert table.pop(_TARGET_ROW) == TARGET, f"{architecture}.csv has another target: run python -m tests.sass --write"
    return first.removeprefix(_MADE_BY).partition(";")[0], table


def write_table(architecture: str, table: Table, folder: Path = HERE) -> None:
    """Write a table: the NVRTC release, the target, and one row per kernel."""
    text = io.StringIO()
    text.write(f"{_MADE_BY}{release()}; written by python -m tests.sass --write\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["op", "kernel", *Facts._fields])
    for key, facts in {_TARGET_ROW: TARGET, **table}.items():
        writer.writerow([*key, *facts])
    (folder / f"{architecture}.csv").write_text(text.getvalue(), encoding="utf-8")


def ops_with_kernels() -> list[Op]:
    """Return the ops that have device code."""
    return [op for op in OPS if op.kernels]


def summary(table: Mapping[tuple[str, str], Facts]) -> str:
    """Return the number of streaming kernels that reach each target, and the facts by op, as two Markdown tables."""
    streaming = {key: facts for key, facts in table.items() if is_streaming(key[1])}
    total = len(streaming)
    targets = {
        "load_bits": "widest load: 128 bits", "store_bits": "widest store: 128 bits",
        "narrow": "no narrower access beside a wide one", "spills": "no spills",
        "stack_bytes": "no stack", "registers": f"{TARGET.registers} registers or fewer",
        "in_flight_bytes": f"{TARGET.in_flight_bytes // 1024} KiB of loads in flight per SM",
        "emulated": "16-bit and 8-bit floats converted by hardware", "calls": "no call between a loop's loads",
    }  # fmt: skip
    lines = ["", "| target | kernels that reach it |", "|---|---|"]
    for name, words in targets.items():
        lines.append(
            f"| {words} | {sum(name not in missed(facts, key[1]) for key, facts in streaming.items())} of {total} |"
        )
    lines.append(
        f"| **all of them** | **{sum(not missed(facts, key[1]) for key, facts in streaming.items())} of {total}** |"
    )
    lines += [
        "",
        "| op | kernels | load, bits | store, bits | registers | in flight, KiB per SM | of the target | spills |",
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    for op in dict.fromkeys(op for op, _ in streaming):
        of_op = [facts for (name, _), facts in streaming.items() if name == op]
        flying = [facts.in_flight_bytes for facts in of_op]
        shares = [min(100, 100 * value // TARGET.in_flight_bytes) for value in flying]
        cells = [
            f"`{op}`", str(len(of_op)), _range([facts.load_bits for facts in of_op]),
            _range([facts.store_bits for facts in of_op]), _range([facts.registers for facts in of_op]),
            _range([value // 1024 for value in flying]), f"{_range(shares)} %", _range([facts.spills for facts in of_op]),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", ""])


def _range(values: list[int]) -> str:
    return str(min(values)) if min(values) == max(values) else f"{min(values)} to {max(values)}"
