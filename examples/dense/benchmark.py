"""Times a mode against torch's own layer, forward and backward: ``benchmark.py -m cpp --sizes 64 1024 --plot out.png``."""

import random
import statistics
import time

import torch
from modes import parser, require

from anyaccel import get_accelerator
from anyaccel.ops import Dense

FEATURES = 1024
ROUNDS = 9


class Eager(torch.nn.Linear):
    def forward(self, x):
        return torch.sigmoid(super().forward(x))


def measured(layers, rows, device):
    """Return each layer's median seconds per step; the layers take turns."""
    x = torch.randn(rows, FEATURES, device=device, requires_grad=True)
    grad = torch.randn(rows, FEATURES, device=device)
    synchronize = get_accelerator().synchronize
    times = {name: [] for name in layers}
    order = list(layers.items())
    for turn in range(ROUNDS + 1):
        random.Random(turn).shuffle(order)
        for name, layer in order:
            for _ in range(2):  # the first step is not timed: it runs with caches that another layer has filled
                layer.zero_grad()
                x.grad = None
                started = time.perf_counter()
                layer(x).backward(grad)
                synchronize()
            times[name].append(time.perf_counter() - started)
    return {name: statistics.median(found[1:]) for name, found in times.items()}


def main():
    arguments = parser(__doc__)
    arguments.add_argument("--sizes", type=int, nargs="+", default=[64, 256, 1024, 4096], help="rows of a batch")
    arguments.add_argument("--plot", help="a file for the plot")
    chosen = arguments.parse_args()
    device = require(chosen.mode)
    name = chosen.mode or "default"
    eager = Eager(FEATURES, FEATURES, device=device)
    layers = {name: Dense(FEATURES, FEATURES, mode=chosen.mode, device=device), "eager": eager}
    if name != "py":
        layers["py"] = Dense(FEATURES, FEATURES, mode="py", device=device)
    compiled = Eager(FEATURES, FEATURES, device=device)
    compiled.compile()
    layers["compile"] = compiled
    results = {rows: measured(layers, rows, device) for rows in chosen.sizes}
    print(f"{FEATURES} x {FEATURES}, forward and backward, on {device}, ms")
    for rows, times in results.items():
        print(f"{rows:6} rows: " + ", ".join(f"{key} {seconds * 1e3:.2f}" for key, seconds in times.items()))
    for peer in [key for key in layers if key != name]:
        ratios = [times[peer] / times[name] for times in results.values()]
        print(f"{peer} / {name}: {statistics.geometric_mean(ratios):.2f}")
    if chosen.plot:
        plot(results, name, chosen.plot)


def plot(results, name, file):
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    for peer in next(iter(results.values())):
        rates = [6e-9 * rows * FEATURES**2 / times[peer] for rows, times in results.items()]
        axes.plot(list(results), rates, marker="o", label=peer)
    axes.set(xscale="log", xlabel="rows", ylabel="GFLOP/s, forward and backward", title=f"Dense, mode {name}")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.savefig(file)


if __name__ == "__main__":
    main()
