"""``--target torch.accelerator``: what it writes runs on a CPU, wherever the module imports torch."""

from __future__ import annotations

import pytest

from anyaccel.migrate.source import migrate_source

SOURCES = {
    "in a function": "def f():\n    import torch\n    return torch.ones(1).cuda()\nprint(f())\n",
    "under another name": "import torch as th\nx = th.ones(1)\nprint(x.cuda())\n",
    "a part of it": "from torch import nn\nprint(nn.Linear(1, 1).cuda().bias.device)\n",
    "for types only": (
        "from __future__ import annotations\nfrom typing import TYPE_CHECKING\nfrom torch import ones\nif TYPE_CHECKING:\n"
        "    import torch\nprint(ones(1).cuda())\n"
    ),
    "everything of it": "from torch import *\nprint(ones(1).cuda())\n",
    "below a docstring": (
        '"""Says something."""\nfrom torch import nn\nprint(nn.Linear(1, 1).cuda().bias.device)\nassert __doc__\n'
    ),
    "below a docstring alone": (
        '"""Says something."""\n\n\ndef f():\n    import torch\n\n    return torch.ones(1).cuda()\n\n\n'
        "assert __doc__\nprint(f())\n"
    ),
    "below a shebang and an encoding": (
        '#!/usr/bin/env python3\n# -*- coding: latin-1 -*-\n"""\u00e9"""\n\n\ndef f():\n    import torch\n\n'
        "    return torch.ones(1).cuda()\n\n\nprint(f(), __doc__)\n"
    ),
    "a rank": "import torch\nrank = 3\nprint(rank % torch.cuda.device_count())\n",
    "no line end": "def f():\n    import torch; return torch.ones(1).cuda()\nf()",
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_program_runs_on_a_cpu(name: str) -> None:
    source = SOURCES[name]
    done = migrate_source(source, "torch.accelerator")
    assert done.new != source
    head = [line for line in source.splitlines(keepends=True)[:2] if line.startswith("#")]
    assert done.new.startswith("".join(head))
    code = compile(done.new.encode("latin-1" if "latin-1" in source else "utf-8"), name, "exec", dont_inherit=True)
    exec(code, {"__name__": "program"})  # noqa: S102
    assert migrate_source(done.new, "torch.accelerator").new == done.new


ADVISED = {
    "x = torch.zeros(2, pin_memory=flag)": "get_accelerator().pin_memory(t)",
    "settings = {'where': 'cuda'}": "accelerator_name()",
    "backend = {'b': 'nccl'}": "accelerator_backend()",
    "n = torch.cuda.utilization()": "torch.accelerator has no utilization",
}


@pytest.mark.parametrize("code", ADVISED)
def test_advice_names_what_the_target_has(code: str) -> None:
    (site,) = migrate_source(f"import torch\n{code}\n", "torch.accelerator").sites
    assert ADVISED[code] in site.reason
    served = site.reason.partition(" (--target anyaccel has")
    assert "get_accelerator()" not in site.reason or served[1]
