"""Assembles ``sigmoid.ptx``: ``ptx.py compile``, or ``ptx.py recompile`` to do so even if nothing has changed.

The result is found by the file's content: after an edit, the next run of any program uses the new code. On a GPU, it also runs.
``compile.sh`` and ``recompile.sh`` build and run a program without Python.
"""

import argparse
import shutil
import sys
from pathlib import Path

import torch

from anyaccel import AnyaccelError
from anyaccel.ops import Dense, DeviceKernel
from anyaccel.ops.dense_modes import PtxSigmoid

HERE = Path(__file__).parent


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("compile", "recompile"))
    parser.add_argument("--source", type=Path, default=HERE / "sigmoid.ptx")
    parser.add_argument("--target", default="sm_90", help="the GPU's architecture")
    parser.add_argument("--out", type=Path, help="where to copy the machine code")
    chosen = parser.parse_args()
    kernel = DeviceKernel(chosen.source.read_text(), "sigmoid_forward", ("tensor", "tensor", "int64"), language="ptx")
    try:
        entry = kernel.compile(chosen.target)
        if chosen.command == "recompile":
            shutil.rmtree(entry.binary.parent)
            entry = kernel.compile(chosen.target)
    except AnyaccelError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    if chosen.out:
        shutil.copyfile(entry.binary, chosen.out)
    print(f"{chosen.target}: {entry.binary.stat().st_size} bytes in {entry.binary}")
    if torch.cuda.is_available():
        layer = Dense(8, 8, mode="ptx", device="cuda")
        x = torch.randn(4, 8, device="cuda")
        layer(x)
        PtxSigmoid.use(chosen.source)
        torch.testing.assert_close(layer(x), torch.sigmoid(torch.nn.functional.linear(x, layer.weight, layer.bias)))
        print("on this GPU the result equals torch.sigmoid's")


if __name__ == "__main__":
    main()
