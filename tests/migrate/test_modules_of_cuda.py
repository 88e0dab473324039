"""Modules and branches that run on CUDA alone stay as they are; beside them, what runs without CUDA is rewritten."""

from __future__ import annotations

import pytest

from anyaccel.migrate.site import SiteOutcome
from anyaccel.migrate.source import migrate_source

USES = """

class Model:
    def __init__(self, net):
        self.net = net.to("cuda")

    def state(self, size):
        return torch.zeros(size, device="cuda")
"""
"""Code that is rewritten wherever it can run without CUDA."""

LOADS = "load(name='wkv', sources=[f'{here}/wkv.cpp', f'{here}/wkv.cu'], is_python_module=False)\n"
STAYS = {
    "a kernel that is compiled at import": "from torch.utils.cpp_extension import load\nhere = '.'\n" + LOADS,
    "a kernel that a name holds": "import torch.utils.cpp_extension as cpp\nops = cpp.load('wkv', ['wkv.cu'])\n",
    "a kernel from a text": "from torch.utils.cpp_extension import load_inline\nops = load_inline('a', cuda_sources=[''])\n",
    "TensorRT": "import tensorrt as trt\n",
    "a part of TensorRT": "from tensorrt import Builder\n",
    "CuPy": "import cupy as cp\n",
    "a part of CuPy": "from cupy import asarray\n",
    "TensorRT, or an error": (
        "try:\n    import tensorrt as trt\nexcept ImportError as error:\n    raise ImportError('install it') from error\n"
    ),
}
PORTS = {
    "a kernel for the CPU": "from torch.utils.cpp_extension import load\nload('wkv', sources=['wkv.cpp'])\n",
    "a kernel that a function compiles": (
        "from torch.utils.cpp_extension import load\nhere = '.'\ndef kernel():\n    return " + LOADS
    ),
    "a kernel that may fail": (
        "from torch.utils.cpp_extension import load\nhere = '.'\ntry:\n    " + LOADS + "except Exception:\n    pass\n"
    ),
    "a kernel under a question": (
        "from torch.utils.cpp_extension import load\nhere = '.'\nif torch.version.hip is None:\n    " + LOADS
    ),
    "an import that compiles nothing": "from torch.utils.cpp_extension import load\n",
    "TensorRT, or nothing": "try:\n    import tensorrt as trt\nexcept ImportError:\n    trt = None\n",
    "CuPy, or nothing": "try:\n    import cupy\nexcept ImportError:\n    cupy = None\n",
    "TensorRT in a function": "def export():\n    import tensorrt as trt\n    return trt.Builder()\n",
    "a name like TensorRT's": "import tensorrt_free as trt\n",
}


def _outcomes(source: str) -> set[SiteOutcome]:
    sites = migrate_source(source, "anyaccel").sites
    lines = source.splitlines()
    return {site.outcome for site in sites if 'cuda"' in lines[site.line - 1]}


@pytest.mark.parametrize("name", STAYS)
def test_a_module_that_cannot_be_imported_without_cuda_stays(name: str) -> None:
    assert _outcomes("import torch\n" + STAYS[name] + USES) == {SiteOutcome.LEFT}


@pytest.mark.parametrize("name", PORTS)
def test_a_module_that_can_is_rewritten(name: str) -> None:
    assert _outcomes("import torch\n" + PORTS[name] + USES) == {SiteOutcome.REWRITTEN}


OFFLOADS = """
import torch

def load(pipeline, device):
    if device == "cuda" and hasattr(pipeline, "enable_model_cpu_offload"):
        pipeline.enable_model_cpu_offload(device=device)
    else:
        {comment}
        pipeline.to(device)
    return torch.zeros(3, device=device)

load(make(), "cuda" if torch.cuda.is_available() else "cpu")
"""


@pytest.mark.parametrize(
    ("comment", "outcome"),
    [
        ("# MPS: unified memory, so offloading saves nothing", SiteOutcome.LEFT),
        ("# on Apple Silicon there is no copy", SiteOutcome.LEFT),
        ("# it fits, or there is no GPU", SiteOutcome.REWRITTEN),
    ],
)
def test_a_branch_whose_other_one_is_for_apples_gpus_stays(comment: str, outcome: SiteOutcome) -> None:
    sites = migrate_source(OFFLOADS.format(comment=comment), "anyaccel").sites
    (asked,) = [site for site in sites if site.line == 5]
    assert asked.outcome is outcome, asked


COMPILED_LATER = """
from torch.utils.cpp_extension import load

def _ops():
    return load(name="scan", sources=["scan.cpp", "scan.cu"])

class Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return _ops().forward(x)

def scan(x):
    if x.device.type != "cuda":
        {other}
    return Scan.apply(x)
"""


@pytest.mark.parametrize("other", ["return plain(x)", "raise ValueError('scan needs CUDA')"])
def test_a_guard_before_a_kernel_that_is_compiled_on_demand_is_reported(other: str) -> None:
    done = migrate_source("import torch\n" + COMPILED_LATER.format(other=other))
    assert done.new == done.old
    assert [site.reason[:22] for site in done.sites if site.outcome is SiteOutcome.REPORTED] == [
        "Scan.apply depends on "
    ]
