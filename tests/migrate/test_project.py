"""What the other files of a run tell about a file: classes with members of their own, lists of devices, TorchScript."""

from __future__ import annotations

import pytest

from anyaccel.migrate.project import survey
from anyaccel.migrate.site import SiteOutcome
from anyaccel.migrate.source import migrate_source

OTHERS = {
    "own is_cuda": "class Data:\n    @property\n    def is_cuda(self):\n        return False\n",
    "own pin_memory": "class BaseData:\n    def pin_memory(self):\n        pass\n",
    "a list of devices": "def build(name, device='cpu'):\n    return device in ['cpu', 'cuda']\n",
    "a Literal of devices": "class Unit:\n    def __init__(self, device: Literal['cuda', 'cpu']):\n        pass\n",
    "samplers of CUDA's and the CPU's": (
        "def sampler(device, graph, is_weighted):\n    if device.type == 'cuda':\n        return ops.CUDASampler(graph)\n"
        "    elif is_weighted:\n        return ops.WeightedSampler(graph)\n    else:\n        return ops.CPUSampler(graph)\n"
    ),
    "memory that onnxruntime is bound to": (
        "def bind(session, x):\n    binding = session.io_binding()\n    binding.bind_input(name='x', device_type=x.device.type)\n"
    ),
    "a class for faiss": (
        "import faiss\nclass Knn(Retriever):\n    def load(self):\n        return place(self.index, self.device)\n"
    ),
    "an error that names the devices": (
        "def check(device):\n    if not device.startswith('c'):\n"
        "        raise ValueError(\n            f\"device must be 'cpu', 'cuda', or 'cuda:1', got {device!r}\")\n"
    ),
    "a base class for TorchScript": "class Arch(nn.Module):\n    def made(self):\n        return torch.jit.script(self)\n",
    "TorchScript": "import torch\ndef f(x):\n    if not torch.jit.is_scripting():\n        return x\n",
}
CODE = {
    "own is_cuda": "def f(data):\n    return data.x if data.is_cuda else None\n",
    "own pin_memory": "def f(batch):\n    return batch.pin_memory()\n",
    "a list of devices": "from other import build\ndevice = 'cuda'\nbuild('a', device)\n",
    "a Literal of devices": "from other import Unit\nunit = Unit(device='cuda')\n",
    "samplers of CUDA's and the CPU's": "device = 'cuda' if torch.cuda.is_available() else 'cpu'\n",
    "memory that onnxruntime is bound to": "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n",
    "a class for faiss": (
        "class Base:\n    def __init__(self, device):\n"
        "        self.device = device or ('cuda:0' if torch.cuda.is_available() else 'cpu')\nclass Retriever(Base):\n    pass\n"
    ),
    "an error that names the devices": (
        "parser.add_argument('-d', '--device', default='cuda' if torch.cuda.is_available() else 'cpu')\n"
    ),
    "a base class for TorchScript": (
        "class Core(nn.Module):\n    def forward(self, x):\n        with torch.cuda.amp.autocast(enabled=False):\n"
        "            return self.layer(x)\n"
    ),
    "TorchScript": "from torch import Tensor\ndef f(x: Tensor) -> Tensor:\n    return x.cuda()\n",
}


@pytest.mark.parametrize("fact", OTHERS)
def test_fact_of_another_file_turns_a_rewrite_into_a_report(fact: str) -> None:
    source = f"import torch\n{CODE[fact]}"
    alone = migrate_source(source, project=survey([("", source)]))
    assert alone.new != source
    together = migrate_source(source, project=survey([("other", OTHERS[fact]), ("", source)]))
    assert together.new == source
    assert [site for site in together.sites if site.outcome is SiteOutcome.REPORTED]


def test_a_scaler_that_another_file_imports_from_torch_is_torchs() -> None:
    source = (
        "import torch\nfrom pkg.amp import GradScaler\nscaler = GradScaler(enabled=True)\nx = torch.ones(1).cuda()\n"
    )
    passed_on = (
        "try:\n    from torch.amp import GradScaler\nexcept ImportError:\n    from torch.cuda.amp import GradScaler\n"
    )
    new = migrate_source(source, project=survey([("amp", passed_on), ("", source)])).new
    assert 'GradScaler(get_accelerator().device_name(), enabled=get_accelerator().device_name() != "cpu")' in new
    own = ("amp", "class GradScaler:\n    pass\n")
    assert (
        "GradScaler(enabled=True)"
        in migrate_source(source, project=survey([("amp", passed_on), own, ("", source)])).new
    )
