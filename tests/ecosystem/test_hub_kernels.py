"""Kernels that ``anyaccel build --hub`` makes, and kernels of a local cache in our loaders, with the real ``kernels``."""

from __future__ import annotations

import importlib.util
import marshal
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from kernels._rust import Digest, DigestAlgorithm

from anyaccel.integrations.hf_kernels import HubExtension, mapping
from anyaccel.kernel.kernel_loader import KernelLoader
from anyaccel.op_builder import DigestError, OpLoadError
from anyaccel.op_builder.engine import environment
from anyaccel.op_builder.engine.targets import host_cpu_targets
from anyaccel.op_builder.engine.toolchains.sycl import choose_dpcpp
from anyaccel.op_builder.hub.checking import digests_of
from anyaccel.op_builder.table import OPS
from kernels import LocalLayerRepository, Mode, kernelize, register_kernel_mapping, use_kernel_forward_from_hub

from ..op_builder.conftest import stand_in_library
from ..ops.spirv_on_host import StandInBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "op_builder" / "hub_program.py"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the kernel of every op that has functions."""
    folder = tmp_path_factory.mktemp("hub")
    command = [Path(sys.executable).parent / "anyaccel", "build", "--hub", folder, "--target", host_cpu_targets()[0]]
    subprocess.run(command, check=True)
    return folder


@pytest.mark.parametrize("anyaccel", ["absent", "beside"])
def test_every_op_loads_and_is_right(made: Path, anyaccel: str) -> None:
    folders = sorted(made.iterdir())
    settings = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, PROGRAM, "kernels", anyaccel, *folders]
    done = subprocess.run(command, capture_output=True, text=True, env=settings, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(folders) == 15


FAKED = """
import sys
from pathlib import Path
from types import SimpleNamespace
import torch
backend, folder = sys.argv[1:3]
torch.version.cuda = "13.0" if backend == "cuda" else None
torch.version.hip = "7.1.25424-abcdef" if backend == "rocm" else None
torch.version.xpu = "20260200" if backend == "xpu" else None
torchs = torch.xpu if backend == "xpu" else torch.cuda
torchs.is_initialized = lambda: True
torchs._lazy_call = lambda call: call()
torchs.device_count = lambda: 1
torchs.current_device = lambda: 0
torchs.get_device_properties = lambda device: SimpleNamespace(
    major=9, minor=0, multi_processor_count=132, gcnArchName="gfx942:sramecc+:xnack-", gpu_subslice_count=8)
if backend == "xpu":
    import ctypes
    loaded = ctypes.CDLL(sys.argv[3])  # as torch loads its library
import kernels
kernel = kernels.get_local_kernel(Path(folder))
(loaded,) = kernels.get_loaded_kernels()
print(Path(kernel.__file__).parent.name, loaded.metadata.backend.archs)
x, weight = torch.randn(3, 8), torch.rand(8)
torch.testing.assert_close(kernel.rms_norm(x, weight, 1e-6), torch.nn.functional.rms_norm(x, (8,), weight, 1e-6))
"""


CHOSEN = {"cuda": "cu130-{} ['9.0']", "rocm": "rocm71-{} ['gfx942']", "xpu": "xpu20262-{} None"}


@pytest.mark.parametrize("backend", CHOSEN)
@pytest.mark.skipif(torch.version.cuda or torch.version.hip, reason="torch has brought its own libraries")
def test_kernels_chooses_the_variants_for_gpus_and_registers_their_code(
    tmp_path: Path, run_python: Callable[..., subprocess.CompletedProcess[str]], backend: str
) -> None:
    """The platform is faked and a stand-in takes the place of the driver: nothing runs on a GPU."""
    targets = ["--target", host_cpu_targets()[0], "--target", "sm_90", "--target", "gfx942", "--rocm", "7.1"]
    targets += ["--target", "spir64"]
    command = [Path(sys.executable).parent / "anyaccel", "build", "rms_norm", "--hub", tmp_path / "out", *targets]
    subprocess.run(command, check=True)
    arguments = [backend, str(tmp_path / "out" / "anyaccel-rms-norm")]
    if backend == "xpu":  # the stand-in brings a real device, Intel's OpenCL CPU
        arguments.append(str(StandInBuilder().build().binary))
        environment.announce_sycl(choose_dpcpp().libsycl.parent)
    else:
        is_cuda = backend == "cuda"
        stand_in_library(*(("libcuda.so.1", tmp_path) if is_cuda else ("libamdhip64.so", tmp_path, "stand_in_hip.c")))
    done = run_python(FAKED, *arguments, LD_LIBRARY_PATH=str(tmp_path))
    shown = done.stdout.splitlines()
    chosen = [line for line in shown if line.startswith("torch-stable-abi")]
    assert chosen == [f"torch-stable-abi210-{CHOSEN[backend].format(f'{os.uname().machine}-linux')}"]
    (rms_norm,) = (op for op in OPS if op.name == "rms_norm")
    loads = [line for line in shown if line.startswith("load ")]
    assert len(loads) == {"cuda": len(rms_norm.kernels_for("cuda")), "rocm": 1, "xpu": 0}[backend]
    assert "cannot be used on GPUs" not in done.stderr, "the driver took every kernel"


def test_digests_are_those_of_kernels(made: Path) -> None:
    (variant,) = (made / "anyaccel-rms-norm" / "build").iterdir()
    signature = variant / "metadata.json.sigstore"  # which kernels of the Hub may have
    signature.write_text("{}")
    try:
        assert digests_of(variant) == Digest.hash_variant(DigestAlgorithm.SHA256, variant).files
    finally:
        signature.unlink()


@use_kernel_forward_from_hub("RMSNorm")
class StockNorm(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(8))
        self.variance_epsilon = 1e-6

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        raise AssertionError("the layer was not served")


def _require_served(layers: dict[str, Any], device: str) -> None:
    register_kernel_mapping(layers, inherit_mapping=False)
    model, x = torch.nn.Sequential(StockNorm()), torch.randn(3, 8)
    kernelize(model, mode=Mode.TRAINING, device=device, use_fallback=False)
    register_kernel_mapping({}, inherit_mapping=False)
    torch.testing.assert_close(model(x), torch.nn.functional.rms_norm(x, (8,), model[0].weight, 1e-6))


@pytest.mark.parametrize("device", ["cpu", "cuda", "rocm", "xpu"])
def test_layers_are_served_for_every_device(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setattr("kernels.layer.repos._find_capability", lambda: 90)  # there is no GPU to ask
    _require_served(mapping(), device)


def test_a_made_kernel_has_its_layers(made: Path) -> None:
    layer = LocalLayerRepository(made / "anyaccel-rms-norm", layer_name="RMSNorm")
    _require_served({"RMSNorm": {"cpu": {Mode.TRAINING: layer}}}, "cpu")


@pytest.fixture
def cached(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of Hugging Face's with one kernel, ``someone/norms`` at ``v1``; returns the kernel's variant."""
    repository = tmp_path / "kernels--someone--norms"
    snapshot = repository / "snapshots" / COMMIT
    shutil.copytree(made / "anyaccel-rms-norm", snapshot, ignore=shutil.ignore_patterns("__pycache__"))
    (repository / "refs").mkdir()
    (repository / "refs" / "v1").write_text(COMMIT)
    monkeypatch.setattr("kernels.hf_hub.CACHE_DIR", str(tmp_path))
    (variant,) = (snapshot / "build").iterdir()
    return variant


class Norms(HubExtension):
    repo_id = "someone/norms"

    def functions(self, module: Any) -> Any:
        return SimpleNamespace(rms_norm=module.rms_norm, came_from=module.__file__)


def _loader() -> type[KernelLoader]:
    class Loader(KernelLoader):
        REGISTRY = [Norms]  # noqa: RUF012

    return Loader


def test_a_kernel_of_the_local_cache_is_an_implementation(cached: Path) -> None:
    functions = _loader()().load("hub")
    assert Path(functions.came_from).parent == cached
    x, weight = torch.randn(3, 8), torch.rand(8)
    torch.testing.assert_close(functions.rms_norm(x, weight, 1e-6), torch.nn.functional.rms_norm(x, (8,), weight, 1e-6))
    assert _loader()().load().came_from == functions.came_from, "by priority"


def test_a_changed_file_in_the_cache_is_refused(cached: Path) -> None:
    (cached / "__init__.py").write_text("raise SystemExit('other code ran')")
    with pytest.raises(
        DigestError, match=r"__init__.py was changed. No code of it was run. Fix: remove .*someone--norms,"
    ):
        _loader()().load("hub")


def test_bytecode_beside_the_files_is_not_run(cached: Path) -> None:
    """It has no digest, and Python would prefer it to the source that was checked."""
    evil = cached.parent / "evil.py"
    evil.write_text("raise SystemExit('other code ran')")
    source = cached / "_op.py"
    planted = Path(importlib.util.cache_from_source(str(source)))
    planted.parent.mkdir(exist_ok=True)
    compiled = marshal.dumps(compile(evil.read_text(), str(source), "exec"))
    stat = source.stat()
    times = int(stat.st_mtime).to_bytes(4, "little") + stat.st_size.to_bytes(4, "little")
    planted.write_bytes(importlib.util.MAGIC_NUMBER + bytes(4) + times + compiled)
    assert Path(_loader()().load("hub").came_from).parent == cached


def test_a_kernel_for_another_torch_is_refused(cached: Path) -> None:
    cached.rename(cached.with_name(cached.name.replace("abi210", "abi299")))
    with pytest.raises(OpLoadError, match=r"(?s)failed: torch-stable-abi299-.* Fix: use a kernel that has a variant"):
        Norms().load()


def test_another_backend_than_torchs_is_refused(cached: Path) -> None:
    class OnMetal(Norms):
        backend = "metal"

    with pytest.raises(OpLoadError, match=r"Invalid backend 'metal'.* Fix: set backend to"):
        OnMetal().load()


def test_what_the_cache_lacks_is_not_downloaded(cached: Path) -> None:
    class Later(Norms):
        revision = "v2"

    with pytest.raises(OpLoadError, match=r"the cache has no revision 'v2' of it: .* Fix: kernels.get_kernel"):
        Later().load()
