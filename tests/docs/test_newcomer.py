"""A newcomer's mistakes show what docs/newcomer.md says: each row is a mistake, made here, whose message must fit the page's."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "newcomer.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (?P<mistake>[^|]+) \| (?P<message>[^|]*`[^|]*) \|$", re.MULTILINE)
MISTAKES = r"""
import json, os, pathlib, runpy, subprocess, sys
import torch
from typer.testing import CliRunner

import anyaccel
from anyaccel.cli import app
from anyaccel.op_builder import CPUOpBuilder, CUDAOpBuilder
from anyaccel.ops import DeviceKernel


class Halve(CPUOpBuilder):
    NAME = "halve"
    STABLE_ABI = True

    def sources(self):
        return ["halv.cpp"]


class AddOne(CUDAOpBuilder):
    NAME = "add_one"

    def sources(self):
        return ["add.cu"]


def misspelled_backend():
    os.environ["ANYACCEL_CPU_BACKEND"] = "shmm"
    anyaccel.CPU_Accelerator().communication_backend_name()


def missing_compiler():
    os.environ["CXX"] = "/nonexistent/g++"
    pathlib.Path("halv.cpp").write_text("")
    Halve().load()


def migrate(*arguments):
    pathlib.Path("train.py").write_text("import torch\nx = torch.ones(2).cuda()\n")
    subprocess.run(["git", "init", "--quiet"], check=True)
    raise CliRunner().invoke(app, ["migrate", *arguments]).exception


def deepspeed():
    sys.argv = ["deepspeed", "trian.py"]
    runpy.run_module("anyaccel.integrations.deepspeed", run_name="__main__")


def plug_in():
    anyaccel.get_accelerator()


kernel = DeviceKernel("__global__ void scale(float* x, float a) {}", "scale", args=("tensor", "float32"))
ptx = DeviceKernel(".version 7.0", "scale", args=("tensor", "float32"), language="ptx")
mistakes = {
    "torch has no module for the device": lambda: anyaccel.TorchAccelerator("mine"),
    "`DS_ACCELERATOR` names it, and it cannot be used": plug_in,
    "a path in `sources()` is wrong": lambda: Halve().load(),
    "an unknown type in `args`": lambda: DeviceKernel("", "scale", args=("float*",)),
    "CPU tensors for a kernel in PTX": lambda: ptx(torch.ones(2), 1.0, grid=1, block=1),
    "a value is missing in the call": lambda: kernel(torch.ones(2), grid=1, block=1),
    "a target that does not exist": lambda: kernel.compile("sm90"),
    "the backend is misspelled": misspelled_backend,
    "`--write` on a file that is not committed": lambda: migrate("--write", "train.py"),
    "a file that is not there": lambda: migrate("missing.py"),
    "an unknown `--target`": lambda: migrate("--target", "cuda", "train.py"),
    "`CXX` names a compiler that is not there": missing_compiler,
}
if torch.version.cuda is None:
    mistakes["`.cu` sources with a CPU build of torch"] = lambda: AddOne().load()
mistakes["the script's name is misspelled"] = deepspeed  # last: it changes what an import of deepspeed means
shown = {}
for mistake, make in mistakes.items():
    try:
        make()
    except (Exception, SystemExit) as error:
        shown[mistake] = f"{error}"
print(json.dumps(shown))
"""


def _rows() -> dict[str, list[str]]:
    """Return what the page quotes for each mistake."""
    return {row["mistake"]: re.findall(r"`([^`]+)`", row["message"]) for row in ROW.finditer(PAGE)}


def _fits(quoted: str, shown: str) -> bool:
    return bool(re.search(".*".join(map(re.escape, re.split(r" ?\.\.\. ?", quoted))), shown, re.DOTALL))


def test_mistakes_show_what_the_page_says(
    tmp_path: Path, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    metadata = tmp_path / "site" / "my_package-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[anyaccel.accelerators]\nmine = my_package:MyAcelerator\n")
    (tmp_path / "site" / "my_package.py").write_text("")
    finished = run_python(MISTAKES, PYTHONPATH=str(tmp_path / "site"), DS_ACCELERATOR="mine")
    shown = json.loads(finished.stdout.splitlines()[-1])
    assert len(shown) >= 13
    rows = _rows()
    assert len(rows) == 32
    wrong = {mistake: said for mistake, said in shown.items() if not all(_fits(part, said) for part in rows[mistake])}
    assert not wrong, json.dumps(wrong, indent=1)
    logged = rows["the entry point misspells the class, or the class cannot be made"]
    assert all(_fits(part, finished.stderr) for part in logged), finished.stderr
