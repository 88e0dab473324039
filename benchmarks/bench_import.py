"""The time that importing anyaccel and choosing an accelerator adds to a program."""

from __future__ import annotations

import statistics
import subprocess
import sys

from harness import show

ROUNDS = 11

MEASURED = {
    "import anyaccel, without torch": ("", "import anyaccel"),
    "import anyaccel; get_accelerator(), after import torch": (
        "import torch",
        "import anyaccel; anyaccel.get_accelerator()",
    ),
    "import anyaccel.ops; a warm load of CPUAdam, after import torch": (
        "import torch",
        "import anyaccel.ops; anyaccel.get_accelerator().create_op_builder('CPUAdamBuilder').load()",
    ),
    "import torch.utils.cpp_extension, after import torch": ("import torch", "import torch.utils.cpp_extension"),
    "deepspeed.accelerator and its get_accelerator(), after import torch": (
        "import torch",
        "from deepspeed.accelerator import get_accelerator; get_accelerator()",
    ),
}
TARGET_MS = {
    "import anyaccel, without torch": "40",
    "import anyaccel; get_accelerator(), after import torch": "30",
    "import anyaccel.ops; a warm load of CPUAdam, after import torch": "25",
}


def milliseconds(before: str, measured: str) -> float:
    code = (
        f"{before}\nimport time; started = time.perf_counter()\n{measured}\nelapsed = time.perf_counter() - started\n"
    )
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code + "print('ms:', elapsed * 1e3)"],
        capture_output=True,
        text=True,
        check=True,
        encoding="utf-8",
    )
    return float(finished.stdout.split("ms:")[1])


def main() -> None:
    times: dict[str, list[float]] = {name: [] for name in MEASURED}
    for _ in range(ROUNDS):
        for name, (before, measured) in MEASURED.items():
            times[name].append(milliseconds(before, measured))
    rows = [[name, f"{statistics.median(values):.1f}", TARGET_MS.get(name, "")] for name, values in times.items()]
    show("import", "Import and first choice, medians of new processes", ["what", "ms", "at most ms"], rows)


if __name__ == "__main__":
    main()
