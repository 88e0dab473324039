"""The cost of a call through ``get_accelerator()``, against the direct torch call and deepspeed's accelerator."""

from __future__ import annotations

import timeit

import psutil
import torch
import torch.cpu
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator as DeepSpeedCPU
from harness import show

import anyaccel

ROUNDS, ROUND_SECONDS = 31, 0.01


def direct_calls() -> dict[str, str]:
    """Return the direct form of each call on this machine's device, as a user would write it."""
    name = anyaccel.get_accelerator().device_name()
    if name == "cpu":
        return {
            "current_device": "torch.cpu.current_device()",
            "device_count": "torch.cpu.device_count()",
            "synchronize": "torch.cpu.synchronize()",
            "current_stream": "torch.cpu.current_stream()",
            "initial_seed": "torch.initial_seed()",
            "memory_allocated": "psutil.Process().memory_info().rss",  # torch has no such call for the CPU
        }
    members = ("current_device", "device_count", "synchronize", "current_stream", "initial_seed", "memory_allocated")
    return {member: f"torch.{name}.{member}()" for member in members}


def main() -> None:
    import deepspeed.accelerator

    if anyaccel.get_accelerator().device_name() == "cpu":
        deepspeed.accelerator.set_accelerator(DeepSpeedCPU())
    names = {
        "torch": torch,
        "psutil": psutil,
        "get_accelerator": anyaccel.get_accelerator,
        "deepspeed_get_accelerator": deepspeed.accelerator.get_accelerator,
    }
    rows = []
    for member, direct in direct_calls().items():
        statements = {
            "direct": direct,
            "ours": f"get_accelerator().{member}()",
            "deepspeed": f"deepspeed_get_accelerator().{member}()",
        }
        timers = {name: timeit.Timer(statement, globals=names) for name, statement in statements.items()}
        calls = {name: max(100, int(ROUND_SECONDS / (timer.timeit(100) / 100))) for name, timer in timers.items()}
        rounds = [
            {name: timer.timeit(calls[name]) / calls[name] for name, timer in timers.items()} for _ in range(ROUNDS)
        ]
        best = {name: sorted(one[name] for one in rounds)[ROUNDS // 2] * 1e9 for name in timers}
        rows.append(
            [
                member,
                direct,
                f"{best['direct']:.1f}",
                f"{best['ours']:.1f}",
                f"{best['deepspeed']:.1f}",
                f"{best['ours'] / best['direct']:.2f}",
                f"{best['deepspeed'] / best['ours']:.2f}",
            ]
        )
    columns = ["member", "direct call", "direct ns", "ours ns", "deepspeed ns", "ours / direct", "deepspeed / ours"]
    show("calls", "A call through get_accelerator(), medians", columns, rows)


if __name__ == "__main__":
    main()
