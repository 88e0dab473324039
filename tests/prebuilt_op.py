"""Loads and runs an op included in the installed wheel; ``make test-wheel`` runs this without a compiler."""

import logging
import sys

import torch

import anyaccel
from anyaccel.op_builder.engine.trace import Trace

logging.basicConfig(level=logging.INFO, format="%(message)s")
builder = anyaccel.get_accelerator().create_op_builder("CPUAdamBuilder")
found = builder.prebuilt(Trace("what the wheel brought"))
assert found is not None
assert "_C" in found.parts
param, states = torch.ones(3), [torch.zeros(3), torch.zeros(3), torch.zeros(())]
builder.load().adam_step([param], [torch.ones(3)], [states[0]], [states[1]], [states[2]], lr=0.5)
assert param.tolist() == [0.5, 0.5, 0.5]
print(f"ok: Python {sys.version.split()[0]}, torch {torch.__version__}: {found.parent.name}")
