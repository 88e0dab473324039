"""CUDA device code by NVRTC, for other machines: no GPU and no toolkit is needed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anyaccel.op_builder import BuildError, OpError, ToolchainError
from anyaccel.op_builder.cuda.device_code import device_code_recipe
from anyaccel.op_builder.engine import environment
from anyaccel.op_builder.engine.build import ensure_built, find_built
from anyaccel.op_builder.engine.cache import open_cache
from anyaccel.op_builder.engine.device_code import DeviceCodeRecipe
from anyaccel.op_builder.engine.targets import CUDA_TARGETS, cuda_targets_for
from anyaccel.op_builder.engine.toolchains import nvrtc
from anyaccel.op_builder.engine.toolchains.nvrtc import choose_nvrtc, probe_nvrtc
from anyaccel.op_builder.table import OPS

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from anyaccel.op_builder.engine.cache import Cache
    from anyaccel.op_builder.op import Op

pytestmark = pytest.mark.skipif(probe_nvrtc().tool is None, reason=f"no NVRTC: {probe_nvrtc().detail}")


@pytest.mark.parametrize(
    "target",
    [
        "sm_90",  # the sources have no condition on the architecture's number
        *(pytest.param(one, marks=pytest.mark.slow) for one in CUDA_TARGETS if one != "sm_90"),
    ],
)
@pytest.mark.parametrize("op", [op for op in OPS if op.kernels], ids=lambda op: op.name)
def test_every_kernel_compiles_for_every_generation(op: Op, target: str) -> None:
    """Into the cache that other tests also use: those of the wheel take them from there."""
    cache = open_cache(environment.cache_dir())
    entry = ensure_built(device_code_recipe(op, target), cache)
    content = entry.binary.read_bytes()
    assert find_built(device_code_recipe(op, target), cache) == entry
    assert set(entry.facts["symbols"]) == {f"run<{kernel}>" for kernel in op.kernels_for("cuda")}
    for symbol in entry.facts["symbols"].values():
        assert symbol.encode() in content
    if target.startswith("sm_"):
        assert content.startswith(b"\x7fELF")
        assert int.from_bytes(content[18:20], "little") == 190  # EM_CUDA, the machine of NVIDIA's GPUs
    else:
        assert f".target {target.replace('compute', 'sm')}".encode() in content


@pytest.mark.parametrize(
    ("capability", "targets"),
    [
        ((7, 5), []),
        ((8, 6), ["sm_80"]),
        ((9, 0), ["sm_90"]),
        ((10, 3), ["sm_100"]),
        ((12, 0), ["sm_120", "compute_120"]),
        ((13, 0), ["compute_120"]),
    ],
)
def test_a_gpu_takes_code_of_its_generation_and_ptx_that_is_not_newer(
    capability: tuple[int, int], targets: list[str]
) -> None:
    assert cuda_targets_for(*capability) == targets


@pytest.fixture
def recipe(tmp_path: Path) -> DeviceCodeRecipe:
    source = tmp_path / "twice.cu"
    source.write_text('#include "twice.h"\nextern "C" __global__ void kernel(int* x) { *x = twice(*x); }\n')
    (tmp_path / "twice.h").write_text("inline int twice(int x) { return 2 * x; }\n")
    options = ("-std=c++20", "-default-device", "-arch=compute_90")
    return DeviceCodeRecipe("twice", source, (tmp_path,), "compute_90", choose_nvrtc(), options, "twice.ptx")


def test_an_error_names_the_line_the_command_and_the_log(cache: Cache, recipe: DeviceCodeRecipe) -> None:
    recipe.source.write_text("\n__global__ void broken( { }\n")
    with pytest.raises(BuildError, match=r"twice\.cu\(2\): error: ") as raised:
        ensure_built(recipe, cache)
    assert raised.value.command.startswith("nvrtc ")
    assert "-arch=compute_90" in raised.value.command
    assert "error" in raised.value.log.read_text()


def test_a_header_and_an_option_are_seen(cache: Cache, recipe: DeviceCodeRecipe, tmp_path: Path) -> None:
    first = ensure_built(recipe, cache)
    (tmp_path / "twice.h").write_text("inline int twice(int x) { return x << 1; }\n")
    second = ensure_built(recipe, cache)
    third = ensure_built(dataclasses.replace(recipe, options=(*recipe.options, "-lineinfo")), cache)
    newer = dataclasses.replace(recipe, compiler=dataclasses.replace(recipe.compiler, version="99.0"))
    assert len({first.binary, second.binary, third.binary, cache.folder("twice", newer.fingerprint())}) == 4


Setup = tuple[str, dict[str, str], tuple[str, ...]]
BY_MACRO = '#define WHICH "cfg.h"\n#include WHICH\n'
HEADERS: dict[str, Setup] = {  # the beginning of the source, the headers, the options
    "by a macro": (BY_MACRO, {"cfg.h": "VALUE"}, ()),
    "by a macro of another header": (
        '#include "names.h"\n#include WHICH\n',
        {"names.h": BY_MACRO[:22], "cfg.h": "VALUE"},
        (),
    ),
    "by a macro of an option": ("#include WHICH\n", {"cfg.h": "VALUE"}, ('-DWHICH="cfg.h"',)),
    "with a comment between": ('#include/**/"cfg.h"\n', {"cfg.h": "VALUE"}, ()),
    "in a folder of -I": ("#include <cfg.h>\n", {"other/cfg.h": "VALUE"}, ("-I{folder}/other",)),
    "in a folder of -I, apart": ("#include <cfg.h>\n", {"other/cfg.h": "VALUE"}, ("-I", "{folder}/other")),
    "in a folder of --include-path": (
        "#include <cfg.h>\n",
        {"other/cfg.h": "VALUE"},
        ("--include-path={folder}/other",),
    ),
    "by --pre-include": ("", {"cfg.h": "VALUE"}, ("--pre-include=cfg.h",)),
    "by -include, of a folder of -I": ("", {"other/cfg.h": "VALUE"}, ("-I{folder}/other", "-include=cfg.h")),
    "of a header that an option includes": (
        "",
        {"cfg.h": '#include "deep.h"', "deep.h": "VALUE"},
        ("--pre-include=cfg.h",),
    ),
}


@pytest.mark.parametrize("setup", HEADERS.values(), ids=HEADERS)
def test_every_way_to_a_header_is_seen(cache: Cache, recipe: DeviceCodeRecipe, tmp_path: Path, setup: Setup) -> None:
    begin, headers, options = setup
    recipe.source.write_text(begin + 'extern "C" __global__ void kernel(int* x) { *x = kAnswer; }\n')
    given = tuple(option.format(folder=tmp_path) for option in options)
    changed = dataclasses.replace(recipe, options=(*recipe.options, *given))
    texts = []
    for value in (12345, 54321):
        for name, content in headers.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(content.replace("VALUE", f"#define kAnswer {value}") + "\n")
        texts.append(ensure_built(changed, cache).binary.read_text())
    assert "12345" in texts[0]
    assert "54321" in texts[1]


@pytest.mark.parametrize(
    ("begin", "options", "named"),
    [
        ("#define HEADER(x) <x.h>\n#include HEADER(cfg)\n", (), "HEADER"),
        ("#include WHERE\n", (), "WHERE"),
        ("", ("@flags.rsp",), "'@flags.rsp'"),
        ("", ("--options-file", "flags"), "'--options-file'"),
    ],
)
def test_a_header_that_cannot_be_known_is_refused_by_name(
    cache: Cache, recipe: DeviceCodeRecipe, begin: str, options: tuple[str, ...], named: str
) -> None:
    recipe.source.write_text(begin + 'extern "C" __global__ void kernel(int* x) {}\n')
    with pytest.raises(OpError, match=rf"compiling the op 'twice' failed: got .*{named}.*would go unnoticed"):
        ensure_built(dataclasses.replace(recipe, options=(*recipe.options, *options)), cache)
    assert not cache.entries()


def test_an_architecture_that_nvrtc_does_not_know_is_its_error(cache: Cache, recipe: DeviceCodeRecipe) -> None:
    with pytest.raises(BuildError, match="invalid value for --gpu-architecture"):
        ensure_built(dataclasses.replace(recipe, options=("-arch=sm_11",)), cache)


def test_the_architectures_of_a_wheel_are_known() -> None:
    assert {80, 90, 100, 120} <= set(choose_nvrtc().architectures())


def test_no_nvrtc_is_a_rejection_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        msg = "libnvrtc.so.13: cannot open shared object file"
        raise RuntimeError(msg)

    monkeypatch.setattr(nvrtc, "_bindings", broken)
    assert probe_nvrtc().detail == "libnvrtc cannot be loaded: libnvrtc.so.13: cannot open shared object file"
    with pytest.raises(ToolchainError, match=r"choosing NVRTC failed: .*Fix: pip install 'anyaccel\[cuda\]'"):
        device_code_recipe(OPS[0], "sm_90")


def test_what_is_not_device_code_is_refused(recipe: DeviceCodeRecipe, tmp_path: Path) -> None:
    (tmp_path / "result").write_bytes(b"nonsense")
    with pytest.raises(OpError, match="got b'nonsense' from NVRTC; expected device code"):
        recipe.verify(tmp_path / "result")


def test_compiling_touches_no_device(
    tmp_path: Path, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """The driver's library, which holds contexts, is not loaded at all."""
    code = """
from anyaccel.op_builder.ahead_of_time import build_orders, named_builders, orders
(outcome,) = build_orders(orders(named_builders(["rms_norm"]), ["sm_90"]))
assert outcome.was_built
assert "libcuda.so" not in open("/proc/self/maps").read()
"""
    run_with_torch(code, ANYACCEL_CACHE_DIR=str(tmp_path / "cache"), PATH=str(tmp_path))


def test_compiling_leaves_pythons_own_bytes_alone(cache: Cache, recipe: DeviceCodeRecipe) -> None:
    """NVRTC writes into its buffers, and CPython shares one object for every single byte."""
    ensure_built(recipe, cache)
    assert bytes([32]) == b"\x20"
    assert [bytes([byte])[0] for byte in range(256)] == list(range(256))
