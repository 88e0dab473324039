"""``AsyncIOBuilder``: tensors to files and back, in the background; errors name the file, offset and bytes."""

from __future__ import annotations

import gc
import itertools
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from anyaccel.op_builder.deepspeed.transfers import AsyncIOError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
FREED, SHRUNK = torch.ones(8), torch.ones(8)
FREED_PART = FREED[1:]
FREED.untyped_storage().resize_(0)
SHRUNK.untyped_storage().resize_(8)
CORE = ROOT / "csrc" / "async_io"
HERE = Path(__file__).parent


@pytest.fixture(params=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder on disk, and one on a file system in memory."""
    if request.param == "disk":
        yield tmp_path
        return
    made = Path("/dev/shm") / f"anyaccel-{os.getpid()}-{tmp_path.name}"  # noqa: S108
    made.mkdir()
    yield made
    shutil.rmtree(made)


def test_it_is_a_handle_with_deepspeeds_names_and_defaults(module: Any) -> None:
    handle = module.aio_handle()
    found = [
        handle.get_block_size(), handle.get_queue_depth(), handle.get_single_submit(), handle.get_overlap_events(),
        handle.get_intra_op_parallelism(), handle.get_alignment(),
    ]  # fmt: skip
    assert found == [1 << 20, 128, False, False, 1, 512]
    assert module.aio_handle(4096, 32, True, True, 4).get_alignment() == 2048
    assert isinstance(handle, module.aio_handle)
    assert module.aio_handle(np.int64(4096), np.int32(3), 1).get_single_submit() is True


def test_deepspeeds_keywords_are_taken_though_they_are_misspelt_or_pythons(module: Any, tmp_path: Path) -> None:
    handle, file = module.aio_handle(), str(tmp_path / "file")
    given = handle.new_cpu_locked_tensor(num_elem=3, example_tenosr=torch.ones(1))
    assert handle.pwrite(buffer=given.fill_(7), filename=file, validate=True, **{"async": True}) == 0
    assert handle.wait() == 1
    read = torch.zeros(3)
    assert handle.pread(buffer=read, filename=file, validate=False, **{"async": False}) == 1
    assert torch.equal(read, given)


@pytest.mark.parametrize("size", [0, 1, 511, 4096, 4097, 8192, 100_000, 1_000_001])
@pytest.mark.parametrize("offset", [0, 1, 4096, 5000])
def test_bytes_come_back_wherever_they_lie(handle: Any, folder: Path, size: int, offset: int) -> None:
    file = folder / "with a space"
    file.write_bytes(b"\x07" * offset)
    written = torch.randint(0, 256, (size,), dtype=torch.uint8)
    assert handle.sync_pwrite(written, str(file), offset) == 1
    assert file.read_bytes() == b"\x07" * offset + bytes(written.tolist())
    read = torch.zeros(size, dtype=torch.uint8)
    assert handle.sync_pread(read, str(file), offset) == 1
    assert torch.equal(read, written)


def test_a_new_file_is_its_owners_and_a_longer_one_keeps_its_end(handle: Any, tmp_path: Path) -> None:
    file = tmp_path / "new"
    handle.sync_pwrite(torch.zeros(10, dtype=torch.uint8), str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    handle.sync_pwrite(torch.ones(4, dtype=torch.uint8), str(file))
    assert file.read_bytes() == b"\1" * 4 + b"\0" * 6


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(7, 5).t(),
        torch.randn(1, 3).expand(4, 3),
        torch.randn(5, 6)[:, ::2],
        torch.randn(3, 3).bfloat16(),
        torch.tensor(2.5),
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.randn(2, 3).requires_grad_(),
        torch.randn(2, 4, 3, 3).to(memory_format=torch.channels_last),
    ],
    ids=["transposed", "expanded", "strided", "bfloat16", "scalar", "conjugate", "with gradient", "channels last"],
)
def test_a_tensors_values_are_written_in_order(handle: Any, tmp_path: Path, tensor: torch.Tensor) -> None:
    file = str(tmp_path / "file")
    handle.sync_pwrite(tensor, file)
    plain = tensor.detach().clone(memory_format=torch.contiguous_format).resolve_conj()
    read = torch.zeros_like(plain)
    handle.sync_pread(read, file)
    assert torch.equal(read, plain)
    if "expanded" not in str(tensor.stride()) and tensor.stride()[:1] != (0,):
        into = torch.zeros_like(tensor.detach())  # of the same layout
        handle.sync_pread(into, file)
        assert torch.equal(into, tensor.detach())


def test_misaligned_memory_is_served_and_locked_memory_too(handle: Any, tmp_path: Path) -> None:
    file = str(tmp_path / "file")
    memory = torch.randint(0, 256, (50_003,), dtype=torch.uint8)
    for shift in (1, 3, 64):
        handle.sync_pwrite(memory[shift:], file)
        back = torch.zeros(60_000, dtype=torch.uint8)[7 : 7 + memory.numel() - shift]
        handle.sync_pread(back, file)
        assert torch.equal(back, memory[shift:])
    locked = handle.new_cpu_locked_tensor(40_000, memory)
    handle.sync_pread(locked, file)
    assert torch.equal(locked, memory[64:40_064])
    assert handle.is_pinned(locked[100:200])
    assert not handle.is_pinned(memory)
    assert handle.free_cpu_locked_tensor(tensor=locked)
    assert not handle.is_pinned(locked)


def test_a_file_system_that_refuses_direct_io_is_read_through_the_page_cache(handle: Any) -> None:
    """The kernel's own files: sysfs refuses O_DIRECT, as other file systems do on other kernels."""
    file = next((f for f in ("/sys/kernel/btf/vmlinux", "/sys/kernel/notes") if os.path.exists(f)), None)
    if file is None:
        pytest.skip("no binary file in /sys/kernel")
    with pytest.raises(OSError, match="Invalid argument"):
        os.open(file, os.O_RDONLY | os.O_DIRECT)
    tensor = torch.zeros(os.path.getsize(file), dtype=torch.uint8)
    assert handle.sync_pread(tensor, file, 0) == 1
    assert bytes(tensor.numpy()) == Path(file).read_bytes()


def test_many_operations_overlap_and_are_counted(handle: Any, tmp_path: Path) -> None:
    numbers = random.Random(0)  # noqa: S311
    expected = bytearray(numbers.randbytes(400_000))
    file = tmp_path / "file"
    file.write_bytes(expected)
    for _ in range(20):
        cuts = sorted({0, len(expected), *(4096 * numbers.randrange(97) for _ in range(6))})
        for begin, end in itertools.pairwise(cuts):
            first = numbers.randrange(begin, end)
            piece = numbers.randbytes(numbers.randrange(1, end - first + 1))
            expected[first : first + len(piece)] = piece
            assert handle.async_pwrite(torch.frombuffer(bytearray(piece), dtype=torch.uint8), str(file), first) == 0
        assert handle.wait() == len(cuts) - 1
        assert handle.wait() == 0
        assert file.read_bytes() == expected
        places = [
            (first := numbers.randrange(len(expected)), numbers.randrange(first, len(expected)) + 1) for _ in range(8)
        ]
        read = [torch.zeros(last - first, dtype=torch.uint8) for first, last in places]
        for tensor, (first, _) in zip(read, places, strict=True):
            handle.async_pread(tensor, str(file), first)
        assert handle.wait() == len(places)
        for tensor, (first, last) in zip(read, places, strict=True):
            assert bytes(tensor.tolist()) == expected[first:last]


@pytest.mark.parametrize("flags", [0, getattr(os, "O_DIRECT", 0)])
def test_an_open_file_is_written(handle: Any, tmp_path: Path, flags: int) -> None:
    """Like deepspeed's FastFileWriter, whose descriptor bypasses the page cache."""
    file = tmp_path / "file"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | flags)
    data = torch.randint(0, 256, (10_001,), dtype=torch.uint8)
    with pytest.raises(TypeError, match="got filename=None and fd=None"):
        handle.async_pwrite(data)
    assert handle.async_pwrite(data, fd=descriptor, file_offset=4096) == 0
    assert handle.wait() == 1
    os.close(descriptor)
    assert file.read_bytes() == b"\0" * 4096 + bytes(data.tolist())


def test_the_functions_without_a_handle(module: Any, tmp_path: Path) -> None:
    data, back = torch.randn(1000), torch.zeros(1000)
    file = str(tmp_path / "file")
    assert module.aio_write(data, file, 4096, 8, False, False, True) == 0
    assert module.aio_read(back, file, 4096, 8, False, False, True) == 0
    assert torch.equal(back, data)
    assert module.deepspeed_memcpy(back, 2 * data) == 0
    assert torch.equal(back, 2 * data)
    said = "got the file has 4000 bytes, 0 of them skipped at .* Fix: pass a buffer of 4000 bytes, or call pread"
    with pytest.raises(AsyncIOError, match=said):
        module.aio_read(torch.zeros(999), file, 4096, 8, False, False, False)
    for dest in (torch.zeros(1000, dtype=torch.int32), torch.zeros(2, 1000)):
        with pytest.raises(ValueError, match=r"deepspeed_memcpy failed: got src, torch\.float32"):
            module.deepspeed_memcpy(dest, data)


def test_a_whole_file_has_what_writes_in_flight_will_have_written(handle: Any, tmp_path: Path) -> None:
    file = tmp_path / "file"
    for size in (1 << 25, 1 << 26):  # into a new file, and beyond the end of one
        data = torch.full((size,), size.bit_length(), dtype=torch.uint8)
        handle.async_pwrite(data, str(file))
        with pytest.raises(AsyncIOError, match=f"got the file has {size} bytes"):
            handle.read(torch.empty(size - 1, dtype=torch.uint8), str(file), False)
        back = torch.zeros(size, dtype=torch.uint8)
        assert handle.read(back, str(file), False) == 0
        assert torch.equal(back, data)
        handle.wait()


# Errors.


def test_a_full_disk_is_an_error_with_file_offset_and_bytes(handle: Any) -> None:
    with pytest.raises(
        AsyncIOError, match=r"writing 40000 bytes failed: got No space left on device at byte \d+"
    ) as caught:
        handle.sync_pwrite(torch.zeros(10_000), "/dev/full")
    assert (caught.value.filename, caught.value.asked, caught.value.moved) == ("/dev/full", 40_000, 0)
    assert handle.wait() == 0


_LIMITED = """
import resource, signal, sys, torch
from anyaccel import get_accelerator
module = get_accelerator().create_op_builder("AsyncIOBuilder").load()
handle = module.aio_handle(8192, 8, backend=sys.argv[2])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    handle.sync_pwrite(torch.ones(100_000, dtype=torch.uint8), sys.argv[1])
except OSError as error:
    print(type(error).__name__, error.errno, error.moved, error)
"""


def test_a_limit_of_a_files_size_is_an_error_and_what_is_before_it_is_written(
    tmp_path: Path, backend: str, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    ran = run_with_torch(_LIMITED, str(tmp_path / "file"), backend).stdout
    name, code, moved, *said = ran.split()
    assert (name, int(code)) == ("AsyncIOError", 27)
    assert "File too large" in " ".join(said)
    assert int(moved) == 20_000 == (tmp_path / "file").stat().st_size
    assert (tmp_path / "file").read_bytes() == b"\1" * 20_000


def test_a_file_that_is_too_short_is_refused_before_anything_is_read(handle: Any, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"\1" * 100)
    tensor = torch.zeros(60, dtype=torch.uint8)
    with pytest.raises(AsyncIOError, match="reading 60 bytes failed: got end of file at byte 100 of the file"):
        handle.async_pread(tensor, str(file), 41)
    assert not tensor.any()
    assert handle.wait() == 0


def test_a_file_that_is_truncated_underneath_is_an_error(
    handle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between checking its size and reading it."""
    file = tmp_path / "file"
    file.write_bytes(b"\1" * 20_000)
    real = os.fstat

    def truncating(descriptor: int) -> os.stat_result:
        found = real(descriptor)
        os.truncate(file, 9000)
        return found

    other = tmp_path / "other"
    other.write_bytes(b"\2" * 50)
    kept = torch.zeros(50, dtype=torch.uint8)
    handle.async_pread(kept, str(other))
    monkeypatch.setattr(os, "fstat", truncating)
    handle.async_pread(torch.zeros(20_000, dtype=torch.uint8), str(file))
    monkeypatch.undo()
    with pytest.raises(AsyncIOError, match=r"got end of file at byte \d+") as caught:
        handle.wait()
    assert 9000 <= caught.value.offset <= 20_000
    assert caught.value.filename == str(file)
    assert kept.tolist() == [2] * 50  # the other operation has ended successfully


def test_what_cannot_be_opened_is_an_oserror_that_names_it(handle: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        handle.async_pread(torch.zeros(4), str(tmp_path / "absent"))
    with pytest.raises(IsADirectoryError):
        handle.async_pwrite(torch.zeros(4), str(tmp_path))
    gc.collect()  # handles of other tests
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(FileNotFoundError):
            handle.async_pread(torch.zeros(4), str(tmp_path / "absent"))
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (torch.zeros(4, device="meta"), "on the device meta"),
        (torch.zeros(4).to_sparse(), "of layout torch.sparse_coo"),
        (torch.zeros(1).expand(4), "whose elements share memory"),
        (torch.zeros(6).unfold(0, 4, 1), "whose elements share memory"),
        (torch._efficientzerotensor(4), "without memory"),
        (FREED_PART, "without memory"),
        (SHRUNK, "without memory"),
    ],
)
def test_tensors_without_memory_for_each_element_are_refused(
    handle: Any, tmp_path: Path, tensor: torch.Tensor, said: str
) -> None:
    (tmp_path / "file").write_bytes(b"1" * 16)
    with pytest.raises(ValueError, match=said):
        handle.async_pread(tensor, str(tmp_path / "file"))
    if "share" not in said:
        with pytest.raises(ValueError, match=said):
            handle.async_pwrite(tensor, str(tmp_path / "file"))
    with pytest.raises(TypeError, match="got list; expected a tensor"):
        handle.async_pread([1.0], str(tmp_path / "file"))
    assert (tmp_path / "file").read_bytes() == b"1" * 16
    assert handle.wait() == 0


def test_an_operation_that_cannot_be_completed_takes_no_other_with_it(handle: Any, tmp_path: Path) -> None:
    file = str(tmp_path / "file")
    handle.sync_pwrite(torch.arange(16.0), file)
    checked, whole = torch.zeros(4, 4), torch.zeros(4, 4).t()  # the second is copied after it has been read
    handle.pread(checked, file, True, True)
    handle.async_pread(whole, file)
    os.unlink(file)
    with pytest.raises(FileNotFoundError):
        handle.wait()
    assert whole.flatten().tolist() == list(range(16))


def test_validation_notices_other_bytes(handle: Any, tmp_path: Path) -> None:
    """Two writes to the same range: the file can contain only one of them."""
    file = str(tmp_path / "file")
    handle.pwrite(torch.zeros(5000), file, True, True)
    handle.pwrite(torch.ones(5000), file, True, True)
    with pytest.raises(AsyncIOError, match="got different bytes in the file"):
        handle.wait()
    assert handle.pwrite(torch.ones(5000), file, True, False) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0, 1), "got block_size=0"),
        ((4096, 0), "got queue_depth=0"),
        ((4096, 1, False, False, 0), "got intra_op_parallelism=0"),
        ((4096, 1 << 20), "got queue_depth=1048576"),
        ((4096, 1, False, False, 1, "uring"), "got backend='uring'; expected one of ('best', 'io_uring'"),
    ],
)
def test_numbers_that_make_no_handle_are_refused(module: Any, arguments: tuple[Any, ...], said: str) -> None:
    *given, backend = (*arguments, "best") if len(arguments) < 6 else arguments
    with pytest.raises(ValueError, match=re.escape(said)):
        module.aio_handle(*given, backend=backend)


# Processes, threads and signals.


def test_a_handle_that_is_dropped_ends_what_it_began(module: Any, backend: str, tmp_path: Path) -> None:
    data = torch.randint(0, 256, (5_000_000,), dtype=torch.uint8)
    gc.collect()  # handles of other tests
    before = threading.active_count(), len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    handle = module.aio_handle(65536, 4, backend=backend)
    handle.async_pwrite(data, str(tmp_path / "file"))
    del handle
    assert (tmp_path / "file").read_bytes() == bytes(data.numpy())
    assert (threading.active_count(), len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))) == before


_FORKED = """
import os, sys, torch
from anyaccel import get_accelerator
handle = get_accelerator().create_op_builder("AsyncIOBuilder").load().aio_handle(4096, 4, backend=sys.argv[2])
handle.async_pwrite(torch.ones(100_000), sys.argv[1])
child = os.fork()
if child == 0:
    try:
        handle.wait()
    except RuntimeError as error:
        print(error, flush=True)
    sys.exit(7)  # through every finalizer
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print(handle.wait())
"""


def test_a_forked_child_says_so_and_ends(tmp_path: Path, backend: str) -> None:
    said = _python(_FORKED, str(tmp_path / "file"), backend)
    assert re.match(r"using an aio_handle failed: process \d+ created it", said)
    assert said.splitlines()[-1] == "1"


_ENDLESS = """
import sys, torch
from anyaccel import get_accelerator
handle = get_accelerator().create_op_builder("AsyncIOBuilder").load().aio_handle(8192, 8, backend=sys.argv[2])
for number in range(1 << 30):
    handle.sync_pwrite(torch.full((100_001,), number % 251, dtype=torch.uint8), f"{sys.argv[1]}/{number % 50}")
    print(number, flush=True)
"""


def test_what_was_reported_as_written_survives_a_kill(tmp_path: Path, backend: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _ENDLESS, str(tmp_path), backend], stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as child:
        assert child.stdout is not None
        for _ in range(40):
            last = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        reported = [last, *(int(line) for line in child.stdout.read().splitlines(keepends=True) if line.endswith("\n"))]
    last = reported[-1]
    for number in range(max(0, last - 30), last + 1):
        content = (tmp_path / str(number % 50)).read_bytes()
        assert content in (bytes([number % 251]) * 100_001,) or number + 50 <= last + 1


def test_signals_interrupt_nothing(handle: Any, tmp_path: Path) -> None:
    data, back = torch.randint(0, 256, (3_000_001,), dtype=torch.uint8), torch.zeros(3_000_001, dtype=torch.uint8)
    caught = []
    before = signal.signal(signal.SIGALRM, lambda *_: caught.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        while len(caught) <= 20:
            handle.sync_pwrite(data, str(tmp_path / "file"))
            handle.sync_pread(back, str(tmp_path / "file"))
            assert torch.equal(back, data)
            back.zero_()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_sixteen_threads_share_a_handle(handle: Any, tmp_path: Path) -> None:
    def go(number: int) -> bool:
        data = torch.full((30_001,), number, dtype=torch.uint8)
        back = torch.zeros_like(data)
        for turn in range(5):
            file = str(tmp_path / f"{number}-{turn}")
            handle.sync_pwrite(data, file)
            handle.sync_pread(back, file)
            if not torch.equal(back, data):
                return False
            back.zero_()
        return True

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(go, range(16)))


# The core by itself.


@pytest.fixture(scope="module", params=["thread", pytest.param("address,undefined", marks=pytest.mark.slow)])
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The stress program on the real kernel and on an unreliable one, under a sanitizer."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++, which brings the sanitizers")
    folder = tmp_path_factory.mktemp("stress")
    flags = [
        "-std=c++20", "-g1", "-O1", f"-fsanitize={request.param}", "-fno-sanitize-recover=all", "-Wno-tsan", "-pthread",
        f"-I{CORE}",
    ]  # fmt: skip
    flaky = ["-Dpread=flaky_pread", "-Dpwrite=flaky_pwrite"]
    subprocess.run([compiler, *flags, *flaky, "-c", CORE / "worker.cpp", "-o", folder / "worker.o"], check=True)
    shared = [HERE / "stress.cpp", CORE / "handle.cpp"]
    subprocess.run(
        [compiler, *flags, *shared, HERE / "flaky.cpp", folder / "worker.o", "-o", folder / "flaky"], check=True
    )
    subprocess.run(
        [
            compiler,
            *flags,
            *shared,
            *(CORE / f"{name}.cpp" for name in ("worker", "io_uring", "kernel_aio")),
            "-o",
            folder / "real",
        ],
        check=True,
    )
    return {"real": folder / "real", "flaky": folder / "flaky"}


@pytest.mark.parametrize("kernel", ["real", "flaky"])
@pytest.mark.parametrize("way", ["best", "kernel_aio", "threads"])
def test_random_transfers_are_right_under_sanitizers(
    programs: dict[str, Path], tmp_path: Path, kernel: str, way: str
) -> None:
    """With a flaky kernel: short transfers, interruptions, rejections of O_DIRECT, and ends in any order."""
    ran = subprocess.run(
        [programs[kernel], tmp_path, "12", "1", way],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=120,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def _python(code: str, *arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
