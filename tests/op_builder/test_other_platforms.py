"""Ops built for another machine: by ziglang, and without paths of this machine."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import struct
import subprocess
from typing import TYPE_CHECKING

import pytest

from anyaccel.op_builder import BuildError, ToolchainError, torch_libraries
from anyaccel.op_builder.ahead_of_time import build_orders, copy_entry, orders, wheel_targets
from anyaccel.op_builder.all_ops import every_builder
from anyaccel.op_builder.cpu import CPUAdamBuilder, ShmCommBuilder
from anyaccel.op_builder.engine.cache import open_cache
from anyaccel.op_builder.engine.environment import cache_dir
from anyaccel.op_builder.engine.errors import SettingError
from anyaccel.op_builder.engine.targets import CPU_TARGETS, Platform, march, wheel_platform
from anyaccel.op_builder.engine.toolchains import cxx

from .conftest import ZIG_CACHE, ZIG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from anyaccel.op_builder import CPUOpBuilder
    from anyaccel.op_builder.engine.cache import Cache

OTHER = "x86_64" if platform.machine() == "aarch64" else "aarch64"
ELF_MACHINES = {"x86_64": 62, "aarch64": 183}
USES_TORCH = """
extern "C" int aoti_torch_delete_tensor_object(void* tensor);
extern "C" __attribute__((visibility("default"))) int forget(void* tensor) { return aoti_torch_delete_tensor_object(tensor); }
"""
WITHOUT_LIBCXX = ("-nostdlib++",)
"""For what does not use it: ziglang compiles its C++ library for each architecture first, which takes a minute."""
USES_LIBCXX = """
#include <stdexcept>
#include <string>
extern "C" __attribute__((visibility("default"))) int answer() {
  try {
    throw std::runtime_error(std::string(40, 'x'));
  } catch (const std::exception& error) {
    return static_cast<int>(std::string(error.what()).size());
  }
}
"""
SAYS_WHERE = """
#include "answer.h"
extern "C" __attribute__((visibility("default"))) const char* where() { return __FILE__; }
extern "C" __attribute__((visibility("default"))) const char* header() { return kHeader; }
"""


@pytest.mark.parametrize(
    "tag", ["aarch64", "manylinux_2_28_riscv64", "manylinux2014_x86_64", "linux_x86_64", "manylinux_2_28_"]
)
def test_a_platform_that_ops_cannot_be_built_for_is_refused(tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYACCEL_PLATFORM", tag)
    with pytest.raises(SettingError, match=rf"got '{tag}'; expected manylinux_<major>_<minor>_<machine>, of x86_64"):
        wheel_targets()


def test_the_platform_decides_the_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYACCEL_PLATFORM", f"manylinux_2_34_{OTHER}")
    assert wheel_platform() == Platform(OTHER, "2.34")
    assert wheel_targets()[: len(CPU_TARGETS[OTHER])] == list(CPU_TARGETS[OTHER])
    assert not set(wheel_targets()) & set(CPU_TARGETS[platform.machine()])


@pytest.mark.parametrize(
    ("machine", "target"), [(machine, target) for machine, targets in CPU_TARGETS.items() for target in targets]
)
def test_ziglang_knows_every_target_by_its_own_name(machine: str, target: str, tmp_path: Path) -> None:
    (tmp_path / "unit.c").write_text("float twice(float x) { return x + x; }\n")
    zig = cxx._zig_command()
    assert zig is not None
    command = [zig[0], "cc", "-target", f"{machine}-linux-gnu.2.28", *cxx.spelled(zig, [march(target), "-O3"])]
    told = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(ZIG_CACHE)}
    subprocess.run([*command, "-c", "unit.c", "-o", "unit.o"], cwd=tmp_path, check=True, env=told)
    assert struct.unpack_from("<H", (tmp_path / "unit.o").read_bytes(), 18) == (ELF_MACHINES[machine],)


def test_other_compilers_get_their_flags_as_they_are() -> None:
    flags = ["-march=x86-64-v3", "-march=armv8.2-a", "-O3"]
    assert cxx.spelled(("/usr/bin/g++",), flags) == flags


@pytest.mark.timeout(ZIG_SECONDS)
def test_an_op_is_built_for_the_other_architecture(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ANYACCEL_PLATFORM", f"manylinux_2_28_{OTHER}")
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(ZIG_CACHE))
    (outcome,) = build_orders(
        orders([make_builder(source=USES_TORCH, ldflags=WITHOUT_LIBCXX)], [list(CPU_TARGETS[OTHER])[-1]])
    )
    binary = outcome.entry.binary.read_bytes()
    assert struct.unpack_from("<H", binary, 18) == (ELF_MACHINES[OTHER],)
    assert b"libtorch_cpu.so" in binary
    assert str(tmp_path).encode() not in binary
    assert len(binary) < 200_000


@pytest.mark.parametrize(("flag", "links_sanitizers"), [("", False), ("-fsanitize=undefined", True)])
def test_ziglangs_runtime_library_for_sanitizers_is_linked_where_a_flag_asks_for_one(
    cache: Cache,
    make_builder: Callable[..., CPUOpBuilder],
    monkeypatch: pytest.MonkeyPatch,
    flag: str,
    links_sanitizers: bool,
) -> None:
    zig = cxx._zig_command()
    assert zig is not None
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(ZIG_CACHE))
    monkeypatch.setenv("CXX", shlex.join(zig))
    from_op = make_builder(ldflags=[flag]).recipe_for("native")
    assert (torch_libraries.WITHOUT_UBSAN not in from_op.link_paths) is links_sanitizers
    monkeypatch.setenv("CXX", f"{shlex.join(zig)} {flag}")
    from_variable = make_builder().recipe_for("native")
    assert (torch_libraries.WITHOUT_UBSAN not in from_variable.link_paths) is links_sanitizers


@pytest.mark.slow  # test_pips_ziglang_builds_an_op_without_a_system_compiler does the same for this architecture
@pytest.mark.timeout(ZIG_SECONDS)
def test_an_op_for_the_other_architecture_brings_its_c_plus_plus_library(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANYACCEL_PLATFORM", f"manylinux_2_28_{OTHER}")
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(ZIG_CACHE))
    (outcome,) = build_orders(orders([make_builder(source=USES_LIBCXX)], [list(CPU_TARGETS[OTHER])[-1]]))
    binary = outcome.entry.binary.read_bytes()
    assert struct.unpack_from("<H", binary, 18) == (ELF_MACHINES[OTHER],)
    assert b"libstdc++.so" not in binary


@pytest.mark.timeout(ZIG_SECONDS)
def test_a_name_that_torch_lacks_is_found_without_the_other_machines_torch(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANYACCEL_PLATFORM", f"manylinux_2_28_{OTHER}")
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(ZIG_CACHE))
    missing = 'extern "C" int aoti_torch_no_such_name();\nextern "C" int answer() { return aoti_torch_no_such_name(); }'
    builder = make_builder(source=missing, ldflags=WITHOUT_LIBCXX)
    with pytest.raises(BuildError, match="undefined symbol: aoti_torch_no_such_name"):
        list(build_orders(orders([builder], [list(CPU_TARGETS[OTHER])[-1]])))


def test_the_stand_in_has_every_name_that_our_ops_use() -> None:
    """Otherwise the wheel of another architecture fails after minutes; this machine's libraries show the names they use."""
    CPUAdamBuilder().build()
    used: set[str] = set()
    for entry in open_cache(cache_dir()).root.glob("*/op-*.so"):
        used |= {name.decode() for name in re.findall(rb"\0((?:aoti_)?torch_\w+)(?=\0)", entry.read_bytes())}
    assert "torch_call_dispatcher" in used or "aoti_torch_empty_strided" in used
    assert {name for name in used if name.startswith("aoti_torch_")} <= set(torch_libraries._stable_names())


def test_torchs_cpp_api_is_not_given_to_ziglang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYACCEL_PLATFORM", f"manylinux_2_28_{OTHER}")
    with pytest.raises(ToolchainError, match=r"'shm_comm' for .* failed: torch's C\+\+ API"):
        ShmCommBuilder().recipe_for(list(CPU_TARGETS[OTHER])[-1])


def test_what_others_get_says_nothing_of_this_machine(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], tmp_path: Path
) -> None:
    place = tmp_path / "a place" / "of sources"
    builder = make_builder(place, SAYS_WHERE, "static const char* kHeader = __FILE__;")
    (outcome,) = build_orders(orders([builder], [list(CPU_TARGETS[platform.machine()])[-1]]))
    folder = copy_entry(outcome, tmp_path / "out")
    for file in folder.iterdir():
        assert str(tmp_path).encode() not in file.read_bytes(), file
        assert b"of sources" not in file.read_bytes(), file
    assert b"csrc/answer.cpp" in outcome.entry.binary.read_bytes()


@pytest.mark.timeout(ZIG_SECONDS)
def test_two_builds_in_different_places_have_the_same_bytes(
    make_builder: Callable[..., CPUOpBuilder], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ANYACCEL_PLATFORM", f"manylinux_2_28_{OTHER}")
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(ZIG_CACHE))
    written = []
    for place in (tmp_path / "one" / "project", tmp_path / "a folder with a longer name" / "project"):
        monkeypatch.setenv("ANYACCEL_CACHE_DIR", str(place / "cache"))
        builder = make_builder(
            place / "csrc", SAYS_WHERE, "static const char* kHeader = __FILE__;", ldflags=WITHOUT_LIBCXX
        )
        (outcome,) = build_orders(orders([builder], [list(CPU_TARGETS[OTHER])[-1]]))
        assert outcome.was_built
        written.append({file.name: file.read_bytes() for file in copy_entry(outcome, place / "out").iterdir()})
    assert written[0] == written[1]


def test_two_builds_in_folders_of_different_names_have_the_same_bytes(
    make_builder: Callable[..., CPUOpBuilder], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written = []
    for place in (tmp_path / "project", tmp_path / "another clone"):
        monkeypatch.setenv("ANYACCEL_CACHE_DIR", str(tmp_path / f"{place.name}.cache"))
        builder = make_builder(place, SAYS_WHERE, "static const char* kHeader = __FILE__;")
        (outcome,) = build_orders(orders([builder], [list(CPU_TARGETS[platform.machine()])[-1]]))
        assert outcome.was_built
        written.append({file.name: file.read_bytes() for file in copy_entry(outcome, place / "out").iterdir()})
    assert written[0] == written[1]


def test_a_wheels_op_fits_whatever_was_set_where_it_was_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise every machine would build again: SOURCE_DATE_EPOCH makes two builds of a wheel identical."""
    target = list(CPU_TARGETS[platform.machine()])[-1]
    here = CPUAdamBuilder().recipe_for(target, any_compiler=True).key()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1790000000")
    assert CPUAdamBuilder().recipe_for(target).key() == here
    monkeypatch.setenv("ANYACCEL_PLATFORM", f"manylinux_2_28_{platform.machine()}")
    zig = CPUAdamBuilder().recipe_for(target)
    assert zig.key() == here
    assert "tools" not in json.dumps(zig.described())


def test_an_op_built_here_for_the_other_architecture_fits_there(monkeypatch: pytest.MonkeyPatch) -> None:
    target = list(CPU_TARGETS[OTHER])[-1]
    libraries = [one for one in every_builder() if one.STABLE_ABI and not one.NAME.endswith("_runtime")]
    keys = {one.NAME: one.recipe_for(target, any_compiler=True).key() for one in libraries}
    monkeypatch.setattr(platform, "machine", lambda: OTHER)
    assert {one.NAME: one.recipe_for(target, any_compiler=True).key() for one in libraries} == keys
