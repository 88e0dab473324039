"""Checks the gradients of a mode: ``grad_check.py {py,cpp,cuda,ptx,sycl,triton}``.

If the mode has float64, it is compared with numerical gradients (``torch.autograd.gradcheck``); in float32, with the mode "py".
"""

import argparse

import torch
from modes import MODES, require

from anyaccel.ops import Dense

IN_FLOAT64 = ("py", "cpp", "cuda")


def gradients(mode, device, x):
    torch.manual_seed(0)
    layer = Dense(33, 17, mode=mode, device=device)
    x = x.to(device).requires_grad_()
    y = layer(x)
    y.square().sum().backward()
    return [one.detach().cpu() for one in (y, x.grad, layer.weight.grad, layer.bias.grad)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=MODES)
    mode = parser.parse_args().mode
    device = require(mode)
    if mode in IN_FLOAT64:
        layer = Dense(5, 3, mode=mode, dtype=torch.float64, device=device)
        x = torch.randn(4, 5, dtype=torch.float64, device=device, requires_grad=True)
        names = [name for name, _ in layer.named_parameters()]

        def call(x, *values):
            return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))

        arguments = (x, *(one.detach().requires_grad_() for one in layer.parameters()))
        assert torch.autograd.gradcheck(call, arguments) and torch.autograd.gradgradcheck(call, arguments)
        print(f"{mode}: first and second derivatives agree with numerical ones in float64")
    x = torch.randn(64, 33, generator=torch.Generator().manual_seed(1))
    for name, mine, expected in zip(
        ("y", "x.grad", "weight.grad", "bias.grad"), gradients(mode, device, x), gradients("py", "cpu", x), strict=True
    ):
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-5)
        print(f"{mode}: {name} differs from py by {(mine - expected).abs().max().item():.1e} at most")


if __name__ == "__main__":
    main()
