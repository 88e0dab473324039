"""Imports that are added stand where isort puts them, if the block was sorted, and after torch's otherwise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from anyaccel.migrate.source import migrate_source

USE = "\nx = torch.ones(1).cuda()\n"
SORTED = [
    "import torch\n",
    "import numpy as np\nimport torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\n",
    "import os\n\nimport torch\nfrom torch import nn\nfrom torchvision import models\n",
    "from __future__ import annotations\n\nimport torch\nfrom absl import app\nfrom torch import nn\n",
    "import torch\nfrom torch import nn\n\nfrom .models import Net\n",
    "import torch\nfrom torch import (\n    nn,\n    optim,\n)\n",
]
UNSORTED = [
    ("from torch import nn\nimport torch\n", "from torch import nn\nimport torch\nfrom anyaccel import get_accelerator\n"),
    ("import torch  # first\n# second\nfrom torch import nn\n", "from torch import nn\nfrom anyaccel import get_accelerator\n"),
    ("from .a import b\nimport torch\n", "import torch\nfrom anyaccel import get_accelerator\n"),
]  # fmt: skip


@pytest.mark.parametrize("imports", SORTED)
def test_sorted_imports_stay_sorted(imports: str, tmp_path: Path) -> None:
    new = migrate_source(imports + USE).new
    assert new.count("from anyaccel import get_accelerator\n") == 1
    (tmp_path / "code.py").write_text(new)
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "I", "code.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + new


@pytest.mark.parametrize(("imports", "expected"), UNSORTED)
def test_other_imports_keep_their_order(imports: str, expected: str) -> None:
    new = migrate_source(imports + USE).new
    assert expected in new
    assert new.replace("from anyaccel import get_accelerator\n", "").startswith(imports)


@pytest.mark.parametrize("target", ["anyaccel", "deepspeed"])
@pytest.mark.parametrize(
    "taken", [("get_accelerator",), ("anyaccel", "deepspeed"), ("get_accelerator", "anyaccel", "deepspeed")]
)
def test_names_that_the_program_uses_itself_keep_their_values(taken: tuple[str, ...], target: str) -> None:
    assigned = "".join(f"{name} = {number}\n" for number, name in enumerate(taken))
    source = f"import torch\n{assigned}x = torch.ones(1).cuda()\n"
    done = migrate_source(source, target)
    again = migrate_source(done.new + "y = torch.ones(1).cuda()\n", target)
    assert again.new.count("import") == done.new.count("import") == 2
    if target == "anyaccel":
        program: dict[str, object] = {}
        exec(again.new, program)  # noqa: S102
        assert [program[name] for name in taken] == list(range(len(taken)))
        assert str(program["x"]) == str(program["y"]) == "tensor([1.])"


def test_a_package_that_is_imported_already_is_used() -> None:
    done = migrate_source("import anyaccel\nimport torch\nget_accelerator = 4\nx = torch.ones(1).cuda()\n")
    assert done.new.endswith("x = torch.ones(1).to(anyaccel.get_accelerator().device_name())\n")
    assert done.new.count("import") == 2
