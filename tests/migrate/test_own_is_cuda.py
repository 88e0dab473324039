"""``is_cuda`` of what is no tensor stays, however its class gets the attribute and wherever it is read."""

from __future__ import annotations

import pytest

from anyaccel.migrate.project import survey
from anyaccel.migrate.source import migrate_source

CLASSES = {
    "field": "@dataclass\nclass DeviceInfo:\n    name: str\n    is_cuda: bool\n",
    "field with a default": "class DeviceInfo:\n    is_cuda = False\n",
    "tuple": "class DeviceInfo(NamedTuple):\n    is_cuda: bool\n",
    "set when it is made": "class DeviceInfo:\n    def __init__(self, name):\n        self.is_cuda = name == 'x'\n",
    "set later": "class DeviceInfo:\n    def fill(self, name):\n        if name:\n            self.is_cuda: bool = True\n",
    "property": "class DeviceInfo:\n    @property\n    def is_cuda(self):\n        return self.name == 'x'\n",
    "in a function": "def made():\n    class DeviceInfo:\n        is_cuda: bool = True\n    return DeviceInfo()\n",
}
READS = {
    "its own name": "device_info.is_cuda",
    "a call": "device_info(x).is_cuda",
    "an attribute": "self.device_info.is_cuda",
    "an element": "infos['first'].is_cuda or device_info[0].is_cuda",
    "made in place": "DeviceInfo(x).is_cuda",
}


@pytest.mark.parametrize("where", ["the same file", "another file"])
@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("owner", CLASSES.values(), ids=CLASSES)
def test_it_is_not_rewritten(owner: str, read: str, where: str) -> None:
    reader = f"import torch\n\n\ndef f(self, x, device_info, infos):\n    return 1 if {read} else 2\n"
    source = owner + "\n\n" + reader if where == "the same file" else reader
    done = migrate_source(source, project=survey([("info", owner), ("reader", source)]))
    assert "on_accelerator(device_info" not in done.new
    assert "on_accelerator(self.device_info" not in done.new
    assert "on_accelerator(DeviceInfo" not in done.new


def test_that_of_a_tensor_is_rewritten() -> None:
    source = "import torch\n\n\ndef f(x):\n    return x.cuda() if torch.ones(1).is_cuda else x\n"
    assert "is_cuda" not in migrate_source(source).new


def test_a_local_variable_of_that_name_is_no_attribute() -> None:
    owner = "class Generator:\n    def run(self, x):\n        is_cuda = x.shape[0] > 1\n        return is_cuda\n"
    source = f"import torch\n\n{owner}\n\ndef f(x):\n    return x.half() if x.is_cuda else x\n"
    assert "x.is_cuda" not in migrate_source(source, project=survey([("info", owner), ("reader", source)])).new
