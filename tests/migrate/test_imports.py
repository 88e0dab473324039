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
