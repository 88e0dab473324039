"""Random kernels in the block emulator have the faults that CUDA's rules give them, and the same results where they have none."""

from __future__ import annotations

import random

import pytest
import torch

from anyaccel.op_builder.engine.errors import KernelFaultError
from anyaccel.ops import DeviceKernel
from tests.emulator.cuda_model import VARIABLES, Block
from tests.emulator.random_kernels import CELLS, Generator, source_of


def _differences(seed: int, count: int, mistakes: float) -> tuple[list[str], set[str]]:
    """Returns the kernels that do something else than they should, and the faults that there were."""
    rng = random.Random(seed)  # noqa: S311
    drawn = [(size, *Generator(rng, size, mistakes).kernel()) for size in rng.choices([7, 20, 32, 40, 64], k=count)]
    kernel = DeviceKernel(source_of([text for _, text, _ in drawn]), "k", ("tensor", "tensor", "int32"))
    differences, seen = [], set()
    for number, (size, text, run) in enumerate(drawn):
        blocks: list[Block] = []
        for index in range(rng.choice([1, 1, 2])):
            blocks.append(Block(size, index, blocks[-1] if blocks else None))
            blocks[-1].run(run)
        expected, memory = blocks[-1].faults, blocks[-1].memory
        tensors = {
            name: torch.zeros(len(blocks) * words, dtype=torch.int32)
            for name, words in (("y", size * VARIABLES), ("g", CELLS))
        }
        fault = ""
        try:
            kernel(*tensors.values(), number, grid=len(blocks), block=size)
        except KernelFaultError as error:
            fault = error.fault
        wrong: list[str] = []
        if not expected and not fault:
            found = {name: tensor.view(torch.uint8).tolist() for name, tensor in tensors.items()}
            wrong = [
                f"{space}[{at}]" for (space, at), byte in memory.items() if space in found and found[space][at] != byte
            ]
        if wrong or (fault not in expected if fault else expected):
            differences.append(
                f"{len(blocks)} x {size} threads: {fault or wrong}, expected {expected}, seed {seed}:\n{text}"
            )
        seen |= expected
    return differences, seen


@pytest.mark.parametrize(
    "seeds", [pytest.param(range(3), id="few"), pytest.param(range(3, 60), id="many", marks=pytest.mark.slow)]
)
def test_a_random_kernel_does_what_cudas_rules_say(seeds: range) -> None:
    seen: set[str] = set()
    for seed in seeds:
        differences, faults = _differences(seed, 60, (0.0, 0.01, 0.1)[seed % 3])
        assert not differences, differences[0]
        seen |= faults
    assert seen == {"race", "divergence", "uninitialised shared memory"}
