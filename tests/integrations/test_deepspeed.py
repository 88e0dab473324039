"""deepspeed uses our accelerator and our builders when the integration is imported first, and says so when it is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., subprocess.CompletedProcess[str]]

FIRST = "import anyaccel.integrations.deepspeed\nimport deepspeed\n"
pytestmark = pytest.mark.filterwarnings("ignore")


def test_importing_the_integration_imports_neither_deepspeed_nor_torch(run_python: Run) -> None:
    code = "import anyaccel.integrations.deepspeed, sys\nassert not {'deepspeed', 'torch'} & set(sys.modules)"
    run_python(code)


def test_deepspeeds_accelerator_is_ours_from_its_first_import_on(run_with_torch: Run) -> None:
    run_with_torch(
        FIRST
        + """
import inspect, anyaccel
from deepspeed.accelerator import DeepSpeedAccelerator, get_accelerator, set_accelerator
ours = anyaccel.get_accelerator()
assert get_accelerator() is ours and isinstance(ours, DeepSpeedAccelerator)
assert issubclass(anyaccel.CUDA_Accelerator, DeepSpeedAccelerator)
assert deepspeed.get_accelerator is anyaccel.get_accelerator and ours._name == "cpu"
missing = [name for name in vars(DeepSpeedAccelerator) if not name.startswith("__") and not hasattr(ours, name)]
assert set(missing) <= {"_abc_impl"}, missing
other = anyaccel.CPU_Accelerator()
set_accelerator(other)
assert anyaccel.get_accelerator() is other is get_accelerator()
inspect.getsource(inspect.getmodule(deepspeed.accelerator.real_accelerator))
""",
        DS_ACCELERATOR="cpu",
    )


def test_optimizers_run_on_our_kernels_and_other_ops_stay_deepspeeds(run_with_torch: Run) -> None:
    said = run_with_torch(
        FIRST
        + """
import torch
from deepspeed.ops import op_builder
from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
from deepspeed.ops.lion import DeepSpeedCPULion
adams, adagrads = torch.optim.AdamW, torch.optim.Adagrad
for optimizer, peer in ((DeepSpeedCPUAdam, adams), (FusedAdam, adams), (DeepSpeedCPUAdagrad, adagrads)):
    steps = []
    for made in (optimizer, peer):
        weight = torch.nn.Parameter(torch.linspace(-1, 1, 67))
        stepper = made([weight], lr=1e-2, weight_decay=0.1)
        for _ in range(3):
            weight.grad = weight.detach().sin()
            stepper.step()
        steps.append(weight.detach())
    torch.testing.assert_close(*steps, rtol=1e-5, atol=1e-6)
DeepSpeedCPULion([torch.nn.Parameter(torch.ones(3))])
for name in ("CPUAdamBuilder", "FusedAdamBuilder", "CPUAdagradBuilder", "CPULionBuilder", "QuantizerBuilder", "AsyncIOBuilder"):
    assert getattr(op_builder, name).__module__.startswith("anyaccel."), name
print(op_builder.CCLCommBuilder.__module__, op_builder.EvoformerAttnBuilder.__name__)
functions = op_builder.CPUAdamBuilder().load()
assert type(functions.adam_update.__wrapped__.__self__).__module__.startswith("anyaccel.")
assert "zenflow_adam_create" not in vars(functions), "deepspeed's are compiled when they are asked for"
from anyaccel.ops import CPUAdam
CPUAdam([torch.nn.Parameter(torch.ones(3))])
from deepspeed.ops.op_builder.all_ops import ALL_OPS
assert {"cpu_adam", "async_io", "fused_lamb", "cpu_lion", "deepspeed_shm_comm"} <= set(ALL_OPS), sorted(ALL_OPS)
""",
        DS_ACCELERATOR="cpu", CCL_ROOT="/opt/ccl",
    ).stdout  # fmt: skip
    assert "deepspeed.ops.op_builder.cpu.comm NotImplementedBuilder" in said


def test_whose_op_is_used_can_be_asked_and_is_logged_once(run_with_torch: Run) -> None:
    finished = run_with_torch(
        "import logging\nlogging.basicConfig(level=logging.INFO)\n"
        + FIRST
        + """
import torch
from anyaccel.integrations.deepspeed import served_ops
from deepspeed.ops.adam import DeepSpeedCPUAdam
from deepspeed.ops.op_builder import CCLCommBuilder, FusedLambBuilder
assert served_ops() == []
for _ in range(2):
    DeepSpeedCPUAdam([torch.nn.Parameter(torch.ones(3))])
    FusedLambBuilder().load().lamb
deepspeed.init_distributed("gloo")
names = ["CPUAdamBuilder", "FusedLambBuilder", "ShareMemCommBuilder"]
assert [tuple(op) for op in served_ops()] == [(name, "", "anyaccel", "") for name in names]
assert CCLCommBuilder().absolute_name().startswith("deepspeed.")
""",
        DS_ACCELERATOR="cpu", CCL_ROOT="/opt/ccl", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
        MASTER_PORT="0",
    )  # fmt: skip
    for name in ("CPUAdamBuilder", "FusedLambBuilder", "ShareMemCommBuilder"):
        assert finished.stderr.count(f"{name} loads anyaccel's op\n") == 1
    assert "DeepSpeed anyaccel.integrations.deepspeed.deepspeed_shm_comm built successfully" in finished.stdout


def test_too_late_is_said_and_the_accelerator_is_set(run_with_torch: Run) -> None:
    finished = run_with_torch(
        """
import deepspeed
import anyaccel.integrations.deepspeed, anyaccel
assert deepspeed.accelerator.get_accelerator() is anyaccel.get_accelerator()
assert not deepspeed.ops.op_builder.CPUAdamBuilder.__module__.startswith("anyaccel")
for name in ("CPUAdamBuilder", "CCLCommBuilder", "ShareMemCommBuilder", "EvoformerAttnBuilder"):
    assert deepspeed.accelerator.get_accelerator().create_op_builder(name) is not None, name
""",
        DS_ACCELERATOR="cpu",
    )
    assert "Fix: import anyaccel.integrations.deepspeed before deepspeed" in finished.stderr


def test_an_import_that_failed_may_be_repeated(run_with_torch: Run) -> None:
    """In a notebook, after the variable is corrected."""
    run_with_torch(
        """
import os, deepspeed
try:
    import anyaccel.integrations.deepspeed
except Exception as error:
    assert type(error).__name__ == "SelectionError", error
os.environ["DS_ACCELERATOR"] = "cpu"
import anyaccel, anyaccel.integrations.deepspeed
assert deepspeed.accelerator.get_accelerator() is anyaccel.get_accelerator()
""",
        DS_ACCELERATOR="cuda",
    )


def test_an_accelerator_written_for_deepspeed_serves_here(run_with_torch: Run) -> None:
    run_with_torch(
        """
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator
class Vendor(CPU_Accelerator):
    def device_name(self, device_index=None):
        return "cpu"
import anyaccel, torch
anyaccel.set_accelerator(Vendor())
accelerator = anyaccel.get_accelerator()
assert type(accelerator) is Vendor and accelerator._name == "cpu"
assert accelerator.supports("mem_get_info") and len(accelerator.mem_get_info()) == 2
with accelerator.autocast(dtype=torch.bfloat16):
    assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
assert accelerator.pin_memory(torch.ones(2)).tolist() == [1, 1]
""",
        DS_ACCELERATOR="cpu",
    )


def test_functions_that_a_builder_of_ours_lacks_come_from_deepspeeds(run_with_torch: Run) -> None:
    run_with_torch("""
import copy
from anyaccel.integrations.deepspeed import served_ops
from anyaccel.integrations.deepspeed.builders import _both, _theirs_alone

class Ours:
    loaded = type("Functions", (), {"quantize": "ours"})()
    def require_torch(self): ...
    def load(self, verbose=False):
        return self.loaded

class Theirs:
    def load(self):
        return type("Functions", (), {"quantize": "theirs", "swizzle_quant": "theirs"})()

functions = _both(Ours, Theirs)().load()
assert (functions.quantize, functions.swizzle_quant) == ("ours", "theirs")
assert _both(Ours, Theirs)().load(verbose=True) is functions
assert _both(Ours, None)().load() is Ours.loaded
assert _theirs_alone(Theirs, "a reason")().load().quantize == "theirs"
assert _theirs_alone(Theirs, "a reason").__name__ == "Theirs"
assert [tuple(op) for op in served_ops()] == [
    ("Ours", "", "anyaccel", ""),
    ("Ours", "swizzle_quant", "deepspeed", "anyaccel has none"),
    ("Theirs", "", "deepspeed", "a reason"),
]
try:
    functions.no_such_function
except AttributeError as error:
    assert "no_such_function" in str(error)
else:
    raise AssertionError("a function that neither has")

loads = []
class TheirsFails:
    def load(self):
        loads.append(self)
        raise RuntimeError("no compiler")

functions = _both(Ours, TheirsFails)().load()
assert copy.copy(functions).quantize == "ours" and not hasattr(functions, "__len__") and not loads
assert not hasattr(functions, "swizzle_quant") and getattr(functions, "swizzle_quant", "default") == "default" and loads
try:
    functions.swizzle_quant
except AttributeError as error:
    assert str(error) == "the op of Ours has no 'swizzle_quant', and deepspeed's own op cannot be loaded: no compiler"
""")


def test_a_call_that_ours_refuses_is_deepspeeds_and_is_said_once(run_with_torch: Run) -> None:
    finished = run_with_torch("""
from anyaccel.integrations.deepspeed.builders import _both

class Ours:
    def require_torch(self): ...
    def load(self, verbose=False):
        def quantize(bits):
            if bits != 8:
                raise NotImplementedError(f"quantize failed: got {bits} bits; expected 8. Fix: choose 8.")
            if verbose == "wrong":
                raise ValueError
            return "ours"
        def swizzle(): raise NotImplementedError("swizzle failed")
        return type("Functions", (), {"quantize": staticmethod(quantize), "swizzle": staticmethod(swizzle)})()

class Theirs:
    def load(self):
        return type("Functions", (), {"quantize": staticmethod(lambda bits: f"theirs, {bits}")})()

functions = _both(Ours, Theirs)().load()
assert [functions.quantize(bits) for bits in (8, 6, 6)] == ["ours", "theirs, 6", "theirs, 6"]
try:
    functions.swizzle()  # which deepspeed's lacks
except NotImplementedError as error:
    assert str(error) == "swizzle failed"
else:
    raise AssertionError("no error")
""")
    assert (
        finished.stderr.count(
            "quantize of Ours uses deepspeed's own function, as anyaccel's does not support a call: quantize failed: got 6"
        )
        == 1
    )


def test_an_op_that_cannot_be_loaded_is_deepspeeds(run_with_torch: Run) -> None:
    finished = run_with_torch(
        FIRST
        + """
import torch
torch.__version__ = "2.8.0+cpu"  # `make test-old-torch` has a real one
from anyaccel.integrations.deepspeed import builders
from anyaccel.op_builder import OpLoadError
from deepspeed.ops.op_builder import CPUAdamBuilder, CPULionBuilder

class Theirs:
    def is_compatible(self, verbose=False):
        return True
    def load(self):
        return "deepspeed's"

class TheirsFails(Theirs):
    def load(self):
        raise RuntimeError("no compiler")

ours = CPUAdamBuilder.__base__
assert builders._both(ours, Theirs)().load() == "deepspeed's"
(served,) = anyaccel.integrations.deepspeed.served_ops()
assert served[:3] == ("CPUAdamBuilder", "", "deepspeed") and "got torch 2.8.0" in served.reason
assert builders._both(ours, Theirs)().is_compatible() and not ours().is_compatible()
try:
    builders._both(ours, TheirsFails)().load()
except OpLoadError as error:
    assert "2.8.0" in str(error) and str(error.__cause__) == "no compiler"
else:
    raise AssertionError("no error")
try:
    builders._both(ours, None)().load()
except OpLoadError as error:
    assert error.__cause__ is None
else:
    raise AssertionError("no error")
""",
        DS_ACCELERATOR="cpu",
    )
    assert (
        "loads deepspeed's own op, as anyaccel's failed: loading the op 'cpu_adam' failed: got torch 2.8.0"
        in finished.stderr
    )


PROGRAM = """
import os
import os
import sys
import beside
from deepspeed.accelerator import get_accelerator
print(type(get_accelerator()).__module__, sys.argv[1:], __name__)
"""


@pytest.mark.parametrize("how", ["file", "module", "launcher", "launcher of a module"])
def test_a_program_runs_unedited(run_python: Run, tmp_path: Path, how: str) -> None:
    folder = tmp_path / "a program"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    (folder / "beside.py").write_text("")
    file = str(folder / "train.py")
    words = [file] if "module" not in how else ["-m", "train"]
    words = ["--local_rank=0", *words] if "launcher" in how else words
    code = f"import runpy, sys; sys.argv = ['', *{words!r}, '--epochs', '3']; "
    code += "runpy.run_module('anyaccel.integrations.deepspeed', run_name='__main__', alter_sys=True)"
    env = {"PYTHONPATH": str(folder)} if "module" in how else {}
    said = run_python(code, DS_ACCELERATOR="cpu", **env).stdout
    given = ["--local_rank=0"] * ("launcher" in how) + ["--epochs", "3"]
    assert f"anyaccel.accelerator.cpu_accelerator {given} __main__" in said


LATE = """
import atexit, pickle, threading, time
class State: pass
def save():
    time.sleep(0.5)
    open("saved", "wb").write(pickle.dumps(State()))
atexit.register(lambda: print("at exit", len(pickle.dumps(State()))))
threading.Thread(target=save).start()
def annotated(x: int): pass
assert annotated.__annotations__ == {"x": int}
"""


@pytest.mark.parametrize("how", ["file", "module", "folder"])
def test_what_runs_after_a_programs_last_line_has_its_classes(tmp_path: Path, how: str) -> None:
    """A thread that saves a checkpoint, and a function of atexit: both pickle a class of ``__main__``."""
    (tmp_path / "late.py").write_text(LATE)
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "__main__.py").write_text(LATE)
    words = {"file": ["late.py"], "module": ["-m", "late"], "folder": ["packed"]}[how]
    command = [sys.executable, "-m", "anyaccel.integrations.deepspeed", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "at exit " in done.stdout
    assert (tmp_path / "saved").read_bytes().endswith(b"State\x94\x93\x94)\x81\x94.")


def test_ds_report_shows_ours_in_an_environment_that_is_not_activated(run_with_torch: Run) -> None:
    code = """
import runpy, sys
sys.argv = ["", sys.argv[1]]
runpy.run_module("anyaccel.integrations.deepspeed", run_name="__main__", alter_sys=True)
"""
    said = run_with_torch(code, "ds_report", DS_ACCELERATOR="cpu", PATH=os.defpath).stdout
    for op in ("cpu_adam", "rms_norm", "fused_lion", "async_io"):
        assert f"\n{op} ." in said


def test_a_program_that_is_not_there_is_refused(run_with_torch: Run) -> None:
    code = "import runpy, sys; sys.argv = ['', 'no-such-command']; "
    code += "runpy.run_module('anyaccel.integrations.deepspeed', run_name='__main__', alter_sys=True)"
    finished = run_with_torch(code, check=False)
    assert finished.returncode == 1
    assert "expected a file, or a command in PATH" in finished.stderr


def test_a_launcher_whose_programs_would_have_stock_deepspeed_is_refused(run_with_torch: Run, tmp_path: Path) -> None:
    (tmp_path / "ds_report").mkdir()  # a folder is no program, also if it has a command's name
    code = """
import os, runpy, shutil, sys
commands = ["deepspeed --num_gpus 2 a.py", "torchrun a.py", "-m torch.distributed.launch a.py", "accelerate launch a.py",
            f"{shutil.which('torchrun', path=os.path.dirname(sys.executable))} a.py", "-m deepspeed.launcher.launch a.py",
            "accelerate-launch a.py", "-m accelerate.commands.accelerate_cli launch a.py"]
for command in (*commands, "ds_report"):
    sys.argv = ["", *command.split()]
    try:
        runpy.run_module("anyaccel.integrations.deepspeed", run_name="__main__", alter_sys=True)
    except SystemExit as error:
        print(error)
"""
    said = run_with_torch(code, DS_ACCELERATOR="cpu").stdout
    for start in ("deepspeed [OPTION …] --module", "torchrun [OPTION …] -m", "accelerate launch [OPTION …] -m"):
        assert f"would use stock deepspeed. Fix: {start} anyaccel.integrations.deepspeed FILE …" in said
    assert said.count("would use stock deepspeed") == 8
    assert "\ncpu_adam ." in said


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.11 has -P")
def test_a_safe_path_loses_none_of_the_users_folders(run_python: Run, tmp_path: Path) -> None:
    (tmp_path / "of_the_user").mkdir()
    (tmp_path / "of_the_user" / "beside.py").write_text("")
    (tmp_path / "train.py").write_text("import beside\nprint('it is there')\n")
    code = "import runpy, sys; sys.argv = ['', 'train.py']; "
    code += "runpy.run_module('anyaccel.integrations.deepspeed', run_name='__main__', alter_sys=True)"
    safe = {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(tmp_path / "of_the_user"), "DS_ACCELERATOR": "cpu"}
    assert "it is there" in run_python(code, **safe).stdout


def test_every_builder_can_be_pickled(run_with_torch: Run) -> None:
    """As all of stock's can: a builder may be in the arguments of a process that is spawned."""
    code = """
import pickle
import anyaccel.integrations.deepspeed
from anyaccel.integrations.deepspeed.builders import every_builder_name
from deepspeed.accelerator import get_accelerator
names = every_builder_name("cpu")
for name in names:
    builder = get_accelerator().create_op_builder(name)
    again = pickle.loads(pickle.dumps(builder))
    assert type(again) is type(builder), name
    assert builder is None or pickle.loads(pickle.dumps(type(builder))) is type(builder), name
print(len(names))
"""
    assert int(run_with_torch(code, DS_ACCELERATOR="cpu").stdout.split()[-1]) > 20


def test_deepspeeds_callers_of_modules_without_native_code_run_on_a_cpu(run_with_torch: Run) -> None:
    """Token dropping, a diffusion model's biases and pinned memory; stock has the first two only for CUDA."""
    code = (
        FIRST
        + """
import torch
from deepspeed.ops.random_ltd.dropping_utils import GatherTokens, ScatterTokens, gpt_sample_tokens
from deepspeed.ops.transformer.inference.bias_add import nhwc_bias_add
from deepspeed.utils.pin_memory import NativePinnedMemory

numbers, mask = gpt_sample_tokens(5, 9, 2, layers=3, attn_mask=torch.ones(2, 1, 9, 9))
assert mask.shape == (2, 1, 5, 5) and torch.equal(numbers, numbers.sort(-1).values)
x = torch.randn(2, 9, 4, requires_grad=True)
every, kept = GatherTokens.apply(x, numbers[0], True)
y = ScatterTokens.apply(every, 2 * kept, numbers[0], True)
y.sum().backward()
factor = torch.ones(2, 9).scatter_(1, numbers[0].long(), 2.0)[..., None].expand_as(x)
assert torch.equal(y, factor * x) and torch.equal(x.grad, factor)

image = torch.randn(2, 4, 3, 3).to(memory_format=torch.channels_last)
assert torch.equal(nhwc_bias_add(image, torch.ones(4), image), image + (image + 1))

memory = NativePinnedMemory()
pinned = memory.pin(image)
assert memory.is_pinned(pinned) and torch.equal(pinned, image)
assert memory.unpin(pinned) and not memory.is_pinned(pinned)
"""
    )
    run_with_torch(code)
