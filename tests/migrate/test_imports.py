"""Imports that are added stand where isort puts them, if the block was sorted, and where torch is imported otherwise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from torch.profiler import supported_activities

from anyaccel.migrate.handed_on import names_handed_on
from anyaccel.migrate.project import Project
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


PROFILES = """
def trace():
    try:
        from torch.profiler import ProfilerActivity, profile
    except ImportError:
        return None
    kinds = [ProfilerActivity.CPU]
    kinds.append(ProfilerActivity.CUDA)
    return profile(activities=kinds)


class Tracer:
    def trace(self):
        import torch.profiler as profiler

        kinds = [profiler.ProfilerActivity.CPU]
        kinds.append(profiler.ProfilerActivity.CUDA)
        return profiler.profile(activities=kinds)
"""


def test_a_module_that_imports_torch_in_its_functions_can_be_imported_without_it() -> None:
    new = migrate_source(PROFILES).new
    assert new.count("import torch\n") == 2
    program: dict[str, Any] = {}
    missing = dict.fromkeys([name for name in sys.modules if name.partition(".")[0] == "torch"])
    with patch.dict(sys.modules, missing):
        exec(new, program)  # noqa: S102
        assert program["trace"]() is None
    assert program["trace"]().activities == program["Tracer"]().trace().activities == supported_activities()


def test_a_decorator_has_its_import_at_the_top() -> None:
    use = "    import torch\n    return torch.ones(1).cuda()\n"
    new = migrate_source(f"from torch.cuda.amp import custom_fwd\n\n@custom_fwd\ndef f():\n{use}\ndef g():\n{use}").new
    assert new.index("from anyaccel import") < new.index("@")


AMP = """
import torch
from torch.cuda.amp import autocast
{}

class A:
    def step(self, f, x):
        with autocast():
            return f(x)
"""


def test_a_star_import_takes_what_the_module_offers() -> None:
    for listed, is_kept in {'__all__ = ["A"]': False, "": True, '__all__ = ["A"]\n__all__ += names': True}.items():
        project = Project(handed_on=names_handed_on([("a", AMP.format(listed)), ("pkg", "from .a import *\n")]))
        new = migrate_source(AMP.format(listed), project=project).new
        assert ("from torch.cuda.amp import autocast" in new) is is_kept


def test_a_package_that_is_imported_already_is_used() -> None:
    done = migrate_source("import anyaccel\nimport torch\nget_accelerator = 4\nx = torch.ones(1).cuda()\n")
    assert done.new.endswith("x = torch.ones(1).to(anyaccel.get_accelerator().device_name())\n")
    assert done.new.count("import") == 2
