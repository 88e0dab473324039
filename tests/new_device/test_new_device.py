"""CONTRIBUTING's list "A new device with kernels", followed to the letter for a device `toy` in a copy of the project.

``created`` has the files of the list's first half; its second half is ``EDITS``. ``torch_toy.py`` registers the device
with torch: it uses the host's memory, and its kernels run on one thread.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests import scratch_copy

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CREATED = [
    "accelerator/toy_accelerator.py", "csrc/runtime/toy_group.h", "csrc/runtime/toy_kernels.cpp", "csrc/runtime/toy.cpp",
    "op_builder/toy/__init__.py", "op_builder/toy/runtime.py", "op_builder/toy/device.py",
]  # fmt: skip
EDITS = {
    "accelerator/real_accelerator.py": (
        '    "cpu": "cpu_accelerator',
        '    "toy": "toy_accelerator:ToyAccelerator",\n',
    ),
    "csrc/runtime/devices.h": ("  ROW(with, xpu, xpu, XPU)", "  ROW(with, toy, privateuse1, PrivateUse1) \\\n"),
    "op_builder/op.py": ('    "xpu": "op_builder.xpu', '    "toy": "op_builder.toy.device:ToyDevice",\n'),
    "op_builder/table.py": ('    Op(\n        name="sycl_runtime"', (HERE / "row.txt").read_text()),
}
"""For each edited file, the text to insert, and the text that it is inserted before."""


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = scratch_copy.copied(ROOT, HERE, tmp_path_factory.mktemp("scratch"))
    for file, (before, text) in EDITS.items():
        scratch_copy.inserted(root / "tree" / file, before, text)
    shutil.copy(HERE / "torch_toy.py", root)
    return scratch_copy.complete(root)


def test_the_list_names_what_is_created_and_edited() -> None:
    named = scratch_copy.named_in(ROOT / "CONTRIBUTING.md", "A new device with kernels", device="toy")
    assert named == [*CREATED, *EDITS]


def test_every_file_that_is_created_is_in_the_list() -> None:
    assert scratch_copy.created(HERE) == sorted(CREATED)


def test_an_edit_is_a_row() -> None:
    assert [text.count("\n") for _, text in EDITS.values()] == [1, 1, 1, 7]


def test_it_is_the_accelerator_and_has_every_op(scratch: Path) -> None:
    """If torch does not know the device, it is rejected by name, and the CPU is chosen."""
    code = """
        from anyaccel.accelerator import get_accelerator
        from anyaccel.accelerator.real_accelerator import candidates
        from anyaccel.op_builder import BUILDERS
        from anyaccel.op_builder.all_ops import every_builder
        from anyaccel.op_builder.deepspeed.names import DEEPSPEED_NAMES
        from anyaccel.op_builder.table import OPS
        rejections = {candidate.name: candidate.rejection for candidate in candidates()}
        assert "does not know it" in rejections["toy"], rejections
        import torch_toy
        accelerator = get_accelerator()
        assert (type(accelerator).__name__, accelerator.device_name(0)) == ("ToyAccelerator", "toy:0")
        runtimes = {"CudaRuntimeBuilder", "HipRuntimeBuilder", "SyclRuntimeBuilder", "XpuRuntimeBuilder"}
        others = {*runtimes, "RaggedOpsBuilder"}  # the last reads addresses on the host
        lacking = {name for name in BUILDERS if accelerator.create_op_builder(name) is None}
        assert lacking == others, lacking
        with_kernels = [op for op in OPS if op.kernels]
        assert len(with_kernels) >= 12
        for op in with_kernels:
            builder = accelerator.create_op_builder(op.builder)
            assert (type(builder).__module__, builder.DEVICE.kind) == ("anyaccel.op_builder.toy", "toy")
            assert builder.is_compatible(verbose=True)
        listed = {type(builder).__name__ for builder in every_builder() if "toy" in type(builder).__module__}
        assert listed >= {op.builder for op in with_kernels} | {"ToyRuntimeBuilder", "FusedAdamBuilder"}
        import pickle
        assert pickle.loads(pickle.dumps(type(builder))) is type(builder)
    """
    _run(scratch, code)


def _run(scratch: Path, code: str) -> str:
    return scratch_copy.run(scratch, "-c", "\n".join(line[8:] for line in code.splitlines()))


def test_its_kernels_compute_what_the_reference_says(scratch: Path) -> None:
    """The tests of the ops run on every device found, and so on this one.

    Except those of autocast, which ``torch_toy`` does not support, and of opcheck, which torch has only for CPU, CUDA and XPU.
    """
    said = scratch_copy.run(
        scratch, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "torch_toy", "tests/ops/test_rms_norm.py",
        "-k", "toy and not autocast and not torch_knows_its_schema",
    )  # fmt: skip
    passed = re.search(r"(\d+) passed", said)
    assert passed is not None
    assert int(passed[1]) > 35
    assert "skipped" not in said


def test_the_fronts_run_on_it_and_devices_do_not_mix(scratch: Path) -> None:
    code = """
        import pytest, torch, torch_toy
        from anyaccel import ops
        from anyaccel.op_builder.toy.runtime import ToyRuntimeBuilder
        runtime = ToyRuntimeBuilder().load()
        x, weight = torch.randn(5, 33), torch.randn(33)
        expected = torch.nn.functional.rms_norm(x, (33,), weight, 1e-6)
        y = ops.rms_norm(x.to("toy"), weight.to("toy"))
        assert y.device.type == "toy" and runtime.launches() == 1
        torch.testing.assert_close(y.cpu(), expected)
        torch.testing.assert_close(ops.rms_norm(x, weight), expected)
        assert runtime.launches() == 1
        for mixed in ((x.to("toy"), weight), (x, weight.to("toy"))):
            with pytest.raises(RuntimeError, match="rms_norm failed: got weight on another device than x; expected the same"):
                ops.rms_norm(*mixed)
        with pytest.raises(RuntimeError, match="got x of float64; expected float32, bfloat16 or float16"):
            ops.rms_norm(x.double().to("toy"), weight.double().to("toy"))
        assert runtime.launches() == 1
        parameter, grad = torch.randn(9, 7), torch.randn(9, 7)
        on_toy = parameter.to("toy").requires_grad_()
        on_toy.grad = grad.to("toy")
        ops.FusedSGD([on_toy], lr=0.5).step()
        torch.testing.assert_close(on_toy.detach().cpu(), parameter - 0.5 * grad)
        assert runtime.launches() == 2
    """
    _run(scratch, code)


def test_the_report_and_build_know_it(scratch: Path) -> None:
    call = "import sys, torch_toy; from anyaccel.cli import main; sys.argv[1:] = {}; main()"
    report = json.loads(scratch_copy.run(scratch, "-c", call.format("['report', '--json']")))
    assert [device["name"] for device in report["devices"] if device["chosen"]] == ["toy"]
    assert {"rms_norm_toy", "sgd_toy"} <= {kernel["name"] for kernel in report["kernels"]}
    built = scratch_copy.run(scratch, "-c", call.format("['build', 'toy_runtime', '--target', 'native']"))
    assert "toy_runtime" in built
