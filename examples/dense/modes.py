"""Code that the examples share: the mode, its device, and a one-line error if its hardware is missing."""

import argparse
import sys

import torch

from anyaccel import AnyaccelError, get_accelerator
from anyaccel.ops import Dense
from anyaccel.ops.dense_modes import MODES

ON_GPU = ("cuda", "ptx", "triton")


def device_of(mode):
    if mode in ON_GPU:
        return "cuda"
    return get_accelerator().device_name() if mode is None else "cpu"


def parser(description):
    made = argparse.ArgumentParser(description=description)
    made.add_argument("-m", "--mode", choices=MODES, default=None, help="how Dense is computed; the best by default")
    return made


def require(mode):
    """Return the mode's device; exit with 2 if the mode cannot run here."""
    try:
        device = device_of(mode)
        Dense(2, 2, mode=mode, device=device)(torch.ones(1, 2, device=device))
    except (AnyaccelError, RuntimeError, AssertionError) as error:
        print(f"mode {mode!r} cannot run here: {str(error).splitlines()[0]}", file=sys.stderr)
        sys.exit(2)
    return device
