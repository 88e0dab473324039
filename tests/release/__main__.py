"""Checks the result of ``make dist``, and rejects what should not be published.

    python -m tests.release dist [AGAIN]

For each wheel with prebuilt ops: its size, every op for every target, no path of the machine that built it, and the platform
tag, which must be the one that ``auditwheel repair`` finds. The sdist alone must run the demo in a new environment. With a second
folder, from another ``make dist``, every file must have the same bytes there, and the demo is not run again.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from anyaccel.op_builder.ahead_of_time import orders, wheel_targets
from anyaccel.op_builder.all_ops import every_builder

from .sdist import problems_of_sdist

MOST_MEGABYTES = 40
_TORCHS = "libtorch_cpu.so"
_PLACES = re.compile(rb"/(?:home|root|tmp|work|opt|usr/(?:local/)?lib/python|builds?)/[\w./+-]{3,60}")
_WITHOUT_OPS = (".tar.gz", "-py3-none-any.whl")
_TAG = re.compile(r"-py3-none-(manylinux_\w+)\.whl$")


def problems_of(wheel: Path) -> list[str]:
    """Return why a wheel should not be published; a wheel without ops, and an sdist, have the right name at most."""
    tag = _TAG.search(wheel.name)
    if tag is None:
        return [] if wheel.name.endswith(_WITHOUT_OPS) else ["it is neither an sdist nor a wheel that PyPI takes"]
    with zipfile.ZipFile(wheel) as content:
        ops = {name: content.read(name) for name in content.namelist() if "/_C/" in name}
    found = [f"{name} names {place[0].decode()}" for name, read in ops.items() if (place := _PLACES.search(read))]
    carried = {name.split("/")[2] for name in ops}
    os.environ["ANYACCEL_PLATFORM"] = tag[1]
    wanted = {f"{order.op}-{order.target}" for order in orders(every_builder(), wheel_targets())}
    found += [f"{name} is missing, or does not belong there" for name in sorted(wanted ^ carried)]
    if wheel.stat().st_size > MOST_MEGABYTES * 1_000_000:
        found.append(f"it is larger than {MOST_MEGABYTES} MB")
    return found + refused_tag(wheel, tag[1])


def refused_tag(wheel: Path, tag: str) -> list[str]:
    """Return auditwheel's objection to a tag; only torch's library may come from outside."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "--patcher", "none"),
            "--disable-isa-ext-check",  # each CPU gets the level that it runs
            *("--exclude", _TORCHS, "--wheel-dir", folder, wheel),
        ]
        finished = subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8")
        granted = [file.name for file in Path(folder).iterdir()]
    if granted == [wheel.name]:
        return []
    said = granted or finished.stderr.strip().splitlines()[-1:]
    return [f"auditwheel does not grant {tag}: {said}"]


def main(folders: list[Path]) -> int:
    table = Table("file", "MB", "")
    is_good = True
    for file in sorted(folders[0].glob("anyaccel-*")):
        problems = problems_of(file)
        if file.suffix == ".gz" and not folders[1:]:
            problems += problems_of_sdist(file)
        for other in folders[1:]:
            same = (other / file.name).is_file() and (other / file.name).read_bytes() == file.read_bytes()
            problems += [] if same else [f"{other} has other bytes, or none"]
        table.add_row(file.name, f"{file.stat().st_size / 1e6:.1f}", "\n".join(problems) or "good")
        is_good = is_good and not problems
    Console(width=120).print(table)
    named = {file.name for file in folders[0].glob("anyaccel-*")}
    missing = [end for end in _WITHOUT_OPS if not any(name.endswith(end) for name in named)]
    missing += sorted(file.name for other in folders[1:] for file in other.glob("anyaccel-*") if file.name not in named)
    if missing:
        Console(width=120).print(f"{folders[0]} lacks {', '.join(missing)}")
    return 0 if is_good and not missing else 1


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit("usage: python -m tests.release DIST [AGAIN]")
    sys.exit(main([Path(name) for name in sys.argv[1:]]))
