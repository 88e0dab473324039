"""``python -m tests.emulator.faults``: the emulator's verdict on each kernel in ``faults.h``, one per line."""

from __future__ import annotations

import ctypes
import re

import torch

from .library import HERE, built_kernels, emulator


class _Arguments(ctypes.Structure):
    _fields_ = (("x", ctypes.c_void_p), ("count", ctypes.c_int64))


def main() -> None:
    """Run each kernel in two blocks of 64 threads."""
    names = re.findall(r"struct (\w+) : Arguments", (HERE / "faults.h").read_text())
    emulator().fix_size(64)
    kernels = emulator().load(built_kernels("faults", names, "faults.h", [HERE]), names)
    for name, kernel in kernels.items():
        x = torch.ones(128)
        problem = emulator().start(kernel, 2, _Arguments(x.data_ptr(), x.numel()))
        print(f"{name}\t{problem or x[64:66].tolist()}")


if __name__ == "__main__":
    main()
