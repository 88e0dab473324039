"""Kernels for Hugging Face's ``kernels``: what ``anyaccel build --hub`` writes, and how changed files are found.

``tests/ecosystem/test_hub_kernels.py`` loads every op with the real package.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import py_compile
import resource
import shutil
import sys
import tempfile
from importlib.util import cache_from_source, module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from typer.testing import CliRunner

from anyaccel.accelerator.errors import AnyaccelError
from anyaccel.cli import app
from anyaccel.kernels.hub import gpu as gpu_module
from anyaccel.op_builder import DigestError, OpError, OpLoadError
from anyaccel.op_builder.cuda.runtime import CudaRuntimeBuilder
from anyaccel.op_builder.engine.entry import Entry
from anyaccel.op_builder.engine.targets import host_cpu_targets, is_cuda_target, wheel_cpu_targets
from anyaccel.op_builder.engine.toolchains.nvrtc import choose_nvrtc, probe_nvrtc
from anyaccel.op_builder.engine.toolchains.sycl import choose_dpcpp, probe_dpcpp
from anyaccel.op_builder.hip.runtime import HipRuntimeBuilder
from anyaccel.op_builder.hub import Variant, variants_of, write_variant
from anyaccel.op_builder.hub.checking import digests_of, require_unchanged
from anyaccel.op_builder.hub.extension import HubExtension
from anyaccel.op_builder.hub.files import copied_files, made_files
from anyaccel.op_builder.table import OPS

from .conftest import stand_in_library

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

PROGRAM = Path(__file__).with_name("hub_program.py")
LEVEL = host_cpu_targets()[0]
CARRIED = [op for op in OPS if op.functions]
(RMS_NORM,) = (op for op in OPS if op.name == "rms_norm")


def _build(*arguments: str | Path, check: bool = True) -> str:
    """Run ``anyaccel build`` in this process, and return what it printed, on one line."""
    done = CliRunner().invoke(app, ["build", *map(str, arguments)], env={"COLUMNS": "200"})
    assert (done.exit_code == 0) is check, done.output
    said = f"{done.output} {done.exception}" if isinstance(done.exception, AnyaccelError) else done.output
    return " ".join(said.replace("│", " ").split())


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the kernel of one op, which has layers, for this machine's CPU."""
    folder = tmp_path_factory.mktemp("some where") / "[kernels]"
    shown = _build("rms_norm", "--hub", folder, "--target", LEVEL)
    assert "[kernels]" in shown
    assert "anyaccel-rms-norm" in shown
    assert f"get_local_kernel(Path('{folder / 'anyaccel-rms-norm'}'))" in shown
    return folder


def _variant(kernels: Path, name: str = "anyaccel-rms-norm") -> Path:
    (found,) = (kernels / name / "build").iterdir()
    return found


@pytest.mark.parametrize("anyaccel", ["absent", "beside"])
def test_a_kernel_works_without_anyaccel_and_beside_it(
    kernels: Path, anyaccel: str, tmp_path: Path, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    autoload = "0" if anyaccel == "absent" else "1"  # torch imports anyaccel for its backends
    code = f"import runpy, sys; sys.argv[0] = {str(PROGRAM)!r}; runpy.run_path(sys.argv[0], run_name='__main__')"
    folders = map(str, kernels.iterdir())
    shown = run_python(code, "plain", anyaccel, *folders, TORCH_DEVICE_BACKEND_AUTOLOAD=autoload).stdout
    assert shown.splitlines()[-1] == "rms_norm add_rms_norm layers rms_norm"


def test_the_metadata_name_the_variant_and_every_file(kernels: Path) -> None:
    variant = _variant(kernels)
    metadata = json.loads((variant / "metadata.json").read_text())
    assert variant.name == f"torch-stable-abi210-cpu-{os.uname().machine}-linux"
    assert metadata["name"] == "anyaccel-rms-norm"
    assert metadata["backend"] == {"type": "cpu"}
    assert metadata["id"] == json.loads((variant / "library.json").read_text())["namespace"]
    files = {path.relative_to(variant).as_posix() for path in variant.rglob("*") if path.is_file()}
    assert set(metadata["digest"]["files"]) == {name for name in files if ".pyc" not in name} - {"metadata.json"}
    assert f"{metadata['id']}-{LEVEL}.so" in metadata["digest"]["files"]


def test_a_second_build_replaces_a_kernel_and_nothing_else(kernels: Path, tmp_path: Path) -> None:
    shutil.copytree(kernels / "anyaccel-rms-norm", tmp_path / "anyaccel-rms-norm")
    variant = _variant(tmp_path)
    before = require_unchanged(variant, "")
    (variant / "stale.py").write_text("")
    (tmp_path / "mine.txt").write_text("precious")
    _build("rms_norm", "--hub", tmp_path, "--target", LEVEL)
    assert require_unchanged(variant, "") == before
    assert [path.name for path in variant.parent.iterdir()] == [variant.name]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["anyaccel-rms-norm", "mine.txt"]


@pytest.mark.parametrize("theirs", ["a folder", "a file", "a dangling link"])
def test_what_is_not_ours_is_kept(kernels: Path, tmp_path: Path, theirs: str) -> None:
    place = tmp_path / "anyaccel-rms-norm" / "build" / _variant(kernels).name
    (place if theirs == "a folder" else place.parent).mkdir(parents=True)
    if theirs == "a folder":
        (place / "precious.txt").write_text("mine")
    elif theirs == "a file":
        place.write_text("mine")
    else:
        place.symlink_to(tmp_path / "absent")
    shown = _build("rms_norm", "--hub", tmp_path, "--target", LEVEL, check=False)
    assert "it exists, and is not the kernel anyaccel-rms-norm" in shown
    assert os.path.lexists(place / "precious.txt" if theirs == "a folder" else place)
    assert [path.name for path in tmp_path.iterdir()] == ["anyaccel-rms-norm"]


def _fake(folder: Path, variant: Variant) -> dict[str, Entry]:
    """Return builds of a variant whose binaries are a few bytes."""
    binary = folder / "binary"
    binary.write_bytes(b"binary")
    symbols = {"run<A<float>>" if is_cuda_target(order.target) else "A<float>": "a" for order in variant.code}
    return {order.recipe.fingerprint(): Entry(order.op, binary, "", {"symbols": symbols}) for order in variant.orders()}


def _write_often(folder: Path, root: Path, targets: list[str]) -> None:
    (variant,) = variants_of(RMS_NORM, targets)
    for _ in range(20):
        write_variant(variant, _fake(folder, variant), root)


def test_two_processes_write_the_same_place(tmp_path: Path) -> None:
    levels, root = wheel_cpu_targets(), tmp_path / "out"
    with concurrent.futures.ProcessPoolExecutor(3, multiprocessing.get_context("fork")) as pool:
        several = [levels, levels[:1], levels[1:]]
        folders = [Path(tempfile.mkdtemp(dir=tmp_path)) for _ in several]
        for done in [pool.submit(_write_often, *one) for one in zip(folders, [root] * 3, several, strict=True)]:
            done.result()
    require_unchanged(_variant(root), "")
    assert [path.name for path in _variant(root).parent.iterdir()] == [_variant(root).name]
    assert [path.name for path in root.iterdir()] == ["anyaccel-rms-norm"]


@pytest.mark.parametrize("other", ["takes it away", "writes its own"])
def test_another_process_acts_before_or_after_any_step_of_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    (variant,) = variants_of(RMS_NORM, wheel_cpu_targets())
    built = _fake(tmp_path, variant)
    place = write_variant(variant, built, tmp_path)
    theirs, rename = shutil.copytree(place, tmp_path / "theirs"), os.rename

    def act() -> None:
        if place.exists():
            rename(place, tmp_path / "taken")
            shutil.rmtree(tmp_path / "taken")
        if other == "writes its own":
            shutil.copytree(theirs, place)

    def write(moment: int) -> int:
        """Write while the other acts at a moment; return how many moments there are, two for each step."""
        seen = 0

        def watched(step: Callable[..., Any]) -> Callable[..., Any]:
            def called(path: Any, *more: Any, **options: Any) -> Any:
                nonlocal seen
                if place not in (path, *more) and path != "metadata.json":
                    return step(path, *more, **options)
                seen += 1
                if seen == moment:
                    act()
                try:
                    return step(path, *more, **options)
                finally:
                    seen += 1
                    if seen == moment:
                        act()

            return called

        with monkeypatch.context() as patch:
            for name in ("rename", "open", "lstat"):
                patch.setattr(os, name, watched(getattr(os, name)))
            write_variant(variant, built, tmp_path)
        if not place.exists():
            assert (other, moment) == ("takes it away", seen)  # at the very end
        else:
            require_unchanged(place, "")
        return seen

    moments = write(0)
    assert moments == 10  # a rename that finds the place taken, two opened files, two renames
    for moment in range(1, moments + 1):
        write(moment)
        write_variant(variant, built, tmp_path)
    assert sorted(path.name for path in place.parent.iterdir()) == [place.name]


@contextlib.contextmanager
def _largest_file(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_that_fails_keeps_the_kernel_that_was_there(kernels: Path, tmp_path: Path) -> None:
    shutil.copytree(kernels / "anyaccel-rms-norm", tmp_path / "anyaccel-rms-norm")
    before = require_unchanged(_variant(tmp_path), "")
    (variant,) = variants_of(RMS_NORM, wheel_cpu_targets())
    with _largest_file(3000), pytest.raises(OpError, match=r"File too large.* Fix: name a folder that can be written"):
        write_variant(variant, _fake(tmp_path, variant), tmp_path)
    assert require_unchanged(_variant(tmp_path), "") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["anyaccel-rms-norm", "binary"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("rms_norm", "--all"), "got both --all and the names of ops"),
        (("rms_norm", "--output", "somewhere"), "got both --hub and --output"),
        (("async_io",), "'async_io' has no functions for torch tensors"),
        (("rms_norm", "--target", "native"), "got the targets native; expected CPU levels and GPUs"),
        (("rms_norm", "--target", "x86-64-v9"), "got 'x86-64-v9'"),
        (("cpu_adam", "--target", "sm_90"), "cpu_adam has no code for sm_90"),
        (("rms_norm", "--target", "opencl-cpu"), "got the targets opencl-cpu; expected CPU levels and GPUs"),
        (("rms_norm", "--target", "gfx942"), "got none as releases of ROCm"),
        (
            ("rms_norm", "--target", "gfx942", "--rocm", "7"),
            "got 7 as releases of ROCm; expected one or more such as 7.1",
        ),
        (
            ("rms_norm", "--target", "x86-64", "--rocm", "7.1"),
            "got 7.1 as releases of ROCm, and the targets x86-64; expected one of AMD's GPUs, too",
        ),
    ],
)
def test_what_cannot_be_built_is_said_before_anything_is(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    assert said in _build(*arguments, "--hub", tmp_path / "out", check=False)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_named(kernels: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("")
    shown = _build("rms_norm", "--hub", blocked, "--target", LEVEL, check=False)
    assert "failed: File exists. Fix: pass another one to --hub" in shown
    (place,) = kernels.iterdir()  # of the same op: a file has its name in another folder
    (tmp_path / place.name).write_text("")
    shown = _build("rms_norm", "--hub", tmp_path, "--target", LEVEL, check=False)
    assert "Not a directory" in shown
    assert "Fix: name a folder that can be written" in shown


@pytest.mark.parametrize("op", CARRIED, ids=lambda op: op.name)
def test_every_op_has_files_that_import_only_each_other_and_torch(op: object) -> None:
    files = copied_files(op, "cuda") | made_files(op)  # type: ignore[arg-type]
    for name, text in files.items():
        compile(text, name, "exec")
        code = "\n".join(line for line in text.splitlines() if line.strip().startswith(("from ", "import ")))
        assert "anyaccel" not in code, name


def test_namespaces_differ_by_what_is_built() -> None:
    levels = wheel_cpu_targets()
    (lion,) = (op for op in OPS if op.name == "lion")
    several = (RMS_NORM, levels), (RMS_NORM, levels[:1]), (lion, levels)
    assert len({variants_of(op, targets)[0].namespace for op, targets in several}) == 3
    assert [order.target for order in variants_of(RMS_NORM, levels[::-1])[0].levels] == levels, "the best is first"


@pytest.mark.skipif(probe_nvrtc().tool is None, reason="no NVRTC")
def test_variants_for_gpus_have_their_code_and_its_runtime(tmp_path: Path) -> None:
    targets = [LEVEL, "sm_90", "compute_120", "gfx942", "gfx1100"]
    cpu, cuda, *amd = variants_of(RMS_NORM, targets, ["7.0", "7.1"])
    generation = choose_nvrtc().version.partition(".")[0]
    machine = f"{os.uname().machine}-linux"
    assert [one.name for one in (cpu, cuda, *amd)] == [
        f"torch-stable-abi210-{backend}-{machine}" for backend in ("cpu", f"cu{generation}0", "rocm70", "rocm71")
    ]
    assert len({one.namespace for one in (cpu, cuda, *amd)}) == 4, "a process may load several"
    places = [write_variant(one, _fake(tmp_path, one), tmp_path / "out") for one in (cuda, amd[0])]
    metadata = [require_unchanged(place, "") for place in places]
    assert [one["backend"] for one in metadata] == [
        {"type": "cuda", "archs": ["9.0", "12.0+PTX"]}, {"type": "rocm", "archs": ["gfx942", "gfx1100"]}
    ]  # fmt: skip
    described = json.loads((places[0] / "library.json").read_text())
    assert list(described["levels"]) == [LEVEL]
    files = {
        target: {"file": name, "symbols": {"A<float>": "a"}}
        for target, name in (("sm_90", "sm_90.cubin"), ("compute_120", "compute_120.ptx"))
    }
    assert described["gpu"] == {"runtime": "cuda_runtime", "code": files}
    assert {"_gpu.py", "cuda_runtime.so", "sm_90.cubin", "compute_120.ptx"} <= set(metadata[0]["digest"]["files"])
    assert {"_gpu.py", "hip_runtime.so", "gfx942.hsaco", "gfx1100.hsaco"} <= set(metadata[1]["digest"]["files"])


@pytest.mark.skipif(probe_dpcpp().tool is None, reason="no DPC++")
def test_the_variant_for_intels_gpus_has_spirv_and_its_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (variant,) = variants_of(RMS_NORM, [LEVEL, "spir64"])[1:]
    release = "".join(choose_dpcpp().version.split(".")[:2])
    assert variant.name == f"torch-stable-abi210-xpu{release}-{os.uname().machine}-linux"
    place = write_variant(variant, _fake(tmp_path, variant), tmp_path / "out")
    assert require_unchanged(place, "")["backend"] == {"type": "xpu"}
    described = json.loads((place / "library.json").read_text())["gpu"]
    assert described == {
        "runtime": "xpu_runtime",
        "code": {"spir64": {"file": "spir64.spv", "symbols": {"A<float>": "a"}}},
    }
    assert {"_gpu.py", "xpu_runtime.so", "spir64.spv"} <= {path.name for path in place.iterdir()}
    assert gpu_module.code_for(SimpleNamespace(gpu_subslice_count=8), described["code"]) == "spir64"
    monkeypatch.setenv("ANYACCEL_PLATFORM", f"manylinux_2_28_{os.uname().machine}")
    with pytest.raises(OpError, match=r"got ANYACCEL_PLATFORM and Intel's GPUs.* Fix: unset ANYACCEL_PLATFORM"):
        variants_of(RMS_NORM, [LEVEL, "spir64"])


def test_a_gpu_alone_gets_the_library_for_every_cpu(tmp_path: Path) -> None:
    (variant,) = variants_of(RMS_NORM, ["gfx942"], ["7.1"])
    assert [order.target for order in variant.levels] == wheel_cpu_targets()


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ((9, 0), "sm_90"),
        ((8, 9), "sm_80"),
        ((8, 0), "sm_80"),
        ((7, 5), None),
        ((10, 3), "sm_100f"),
        ((12, 0), "sm_120a"),
        ((12, 1), "compute_90"),
        ((13, 0), "compute_90"),
        ("gfx90a:sramecc+:xnack-", "gfx90a"),
        ("gfx942", None),
    ],
)
def test_the_code_for_a_gpu_is_the_best_that_runs_there(gpu: Any, expected: str | None) -> None:
    code = dict.fromkeys(["compute_80", "compute_90", "sm_80", "sm_90", "sm_100f", "sm_120a", "gfx90a"])
    if isinstance(gpu, str):
        assert gpu_module.code_for(SimpleNamespace(gcnArchName=gpu, major=9, minor=4), {"gfx90a": {}}) == expected
    else:
        assert gpu_module.code_for(SimpleNamespace(major=gpu[0], minor=gpu[1]), code) == expected


REGISTERS = """
import sys, warnings
from pathlib import Path
from types import SimpleNamespace
import torch
queue, in_use = [], False
torch.cuda._lazy_call = lambda call: call() if in_use else queue.append(call)
torch.cuda.is_initialized = lambda: in_use
torch.cuda.device_count = lambda: 3
torch.cuda.current_device = lambda: 1
torch.cuda.get_device_properties = lambda device: SimpleNamespace(
    major=(9, 9, 7)[device], minor=0, multi_processor_count=132, gcnArchName=("gfx942", "gfx942", "gfx906")[device])
from anyaccel.kernels.hub import gpu
folder, library, runtime, target = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
warnings.simplefilter("always")
warnings.showwarning = lambda message, *_: print(message, flush=True)
def register(image):
    (folder / "code").write_bytes(image)
    gpu.register(folder, library, runtime, {target: {"file": "code", "symbols": {"A": "symbol_a", "B": "symbol_b"}}})
    print("registered", flush=True)
register(b"image")
queue[0]()
in_use = True
register(b"image")
register(b"bad")
"""


@pytest.mark.parametrize("builder", [CudaRuntimeBuilder, HipRuntimeBuilder])
@pytest.mark.skipif(torch.version.cuda or torch.version.hip, reason="torch has brought its own libraries")
def test_gpus_get_their_kernels_when_torch_initialises_them(
    kernels: Path, tmp_path: Path, run_python: Callable[..., subprocess.CompletedProcess[str]], builder: Any
) -> None:
    is_cuda = builder is CudaRuntimeBuilder
    stand_in_library(*(("libcuda.so.1", tmp_path) if is_cuda else ("libamdhip64.so", tmp_path, "stand_in_hip.c")))
    (library,) = _variant(kernels).glob("*.so")
    shutil.copyfile(builder().load()._library._name, tmp_path / f"{builder.NAME}.so")
    target = "sm_90" if is_cuda else "gfx942"
    given = [str(tmp_path), str(library), builder.NAME, target]
    shown = run_python(REGISTERS, *given, LD_LIBRARY_PATH=str(tmp_path)).stdout.splitlines()
    no_code = f"{tmp_path} has no code for GPU 2: only for {target}"
    assert shown[:2] == ["registered", no_code], "later, and on no GPU that is not in use"
    shown = shown[2:]
    if is_cuda:
        assert shown[:8] == [
            "push 101",
            "load symbol_a",
            "pop",
            "push 101",
            "load symbol_b",
            "pop",
            no_code,
            "registered",
        ]
        refused = f"{tmp_path} cannot be used on GPUs: cuLibraryLoadData: CUDA_ERROR_INVALID_PTX"
    else:  # the code is loaded with its first kernel
        assert shown[:7] == ["device 1", "load on 1", "device 0", "device 1", "device 0", no_code, "registered"]
        refused = f"{tmp_path} cannot be used on GPUs: hipModuleLoadData: hipErrorNoBinaryForGpu"
    assert any(line.startswith(refused) for line in shown), "a warning: torch's own GPU code still works"
    assert shown[-1] == "registered"


DAMAGES = ["changed", "added", "added bytecode", "a linked folder", "a name elsewhere", "removed"]
DAMAGES += ["no digest", "an unknown algorithm", "not JSON", "too deep"]


def _damage(folder: Path, how: str) -> str:
    """Damage a variant, and return what the error must say."""
    metadata = json.loads((folder / "metadata.json").read_text())
    if how == "changed":
        (folder / "functions" / "eager.py").write_text("print('other code')")
        return "functions/eager.py was changed"
    if how == "added":
        (folder / "json.py").write_text("print('other code')")
        return "json.py is not in metadata.json"
    if how == "added bytecode":
        (folder / "json.pyc").write_bytes(b"other code")
        return "json.pyc is not in metadata.json"
    if how == "a linked folder":
        (folder / "extra").symlink_to(folder.parent)
        return "extra is not in metadata.json"
    if how == "a name elsewhere":
        metadata["digest"]["files"]["../../elsewhere.py"] = ""
        (folder / "metadata.json").write_text(json.dumps(metadata))
        return "../../elsewhere.py is missing"
    if how == "removed":
        (folder / "_op.py").unlink()
        return "_op.py is missing"
    if how == "no digest":
        del metadata["digest"]
    if how == "an unknown algorithm":
        metadata["digest"]["algorithm"] = "md5"
    texts = {"not JSON": "{", "too deep": "[" * 100_000}
    (folder / "metadata.json").write_text(texts.get(how, json.dumps(metadata)))
    return "its files cannot be read" if how in texts else "has no digests of its files"


@pytest.mark.parametrize("how", DAMAGES)
def test_a_changed_file_is_refused(kernels: Path, tmp_path: Path, how: str) -> None:
    folder = Path(shutil.copytree(_variant(kernels), tmp_path / "copy"))
    assert require_unchanged(folder, "")["name"] == "anyaccel-rms-norm"
    said = _damage(folder, how)
    with pytest.raises(DigestError, match=r"No code of it was run. Fix: download it again") as error:
        require_unchanged(folder, "download it again")
    assert said in str(error.value)


def test_what_a_kernel_imports_later_comes_from_its_sources_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytecode has no digest. Python would prefer it to the source that was checked."""
    variant = tmp_path / "variant"
    (variant / "inner").mkdir(parents=True)
    (variant / "__init__.py").write_text("def late():\n    from .inner import part\n    return part.CODE\n")
    (variant / "inner" / "__init__.py").touch()
    source, other = variant / "inner" / "part.py", tmp_path / "other.py"
    source.write_text("CODE = 'checked'\n")
    other.write_text("CODE = 'changed'\n")
    files = digests_of(variant)
    (variant / "metadata.json").write_text(json.dumps({"digest": {"algorithm": "sha256", "files": files}}))
    os.utime(other, ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns))
    py_compile.compile(str(other), cache_from_source(str(source)))

    def get_local_kernel(path: Path, backend: str | None = None) -> Any:
        spec = spec_from_file_location("later_kernel", path / "__init__.py")
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "later_kernel", module)
        spec.loader.exec_module(module)
        return module

    class Late(HubExtension):
        repo_id = "someone/late"

        def _find(self) -> Path:
            return variant

    monkeypatch.setitem(sys.modules, "kernels", SimpleNamespace(get_local_kernel=get_local_kernel))
    assert Late().load().late() == "checked"


def test_a_changed_file_with_changed_metadata_is_refused_by_the_pinned_digest(kernels: Path, tmp_path: Path) -> None:
    import hashlib

    folder = Path(shutil.copytree(_variant(kernels), tmp_path / "copy"))
    pinned = hashlib.sha256((folder / "metadata.json").read_bytes()).hexdigest()
    require_unchanged(folder, "", pinned)
    (folder / "_op.py").write_text("print('other code')")
    metadata = json.loads((folder / "metadata.json").read_text())
    metadata["digest"]["files"] = digests_of(folder)
    (folder / "metadata.json").write_text(json.dumps(metadata))
    require_unchanged(folder, "")  # alone, the metadata cannot tell
    with pytest.raises(DigestError, match=r"metadata.json has the SHA-256 .*; expected"):
        require_unchanged(folder, "", pinned)


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hub(HubExtension):
        repo_id = "someone/something"

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(OpLoadError, match=r"the package kernels is not installed. Fix: pip install kernels"):
        Hub().load()
    assert issubclass(DigestError, OpError)
