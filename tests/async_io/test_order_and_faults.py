"""Operations of one handle: their order, and what interruptions, other threads and faults of the caller change about them."""

from __future__ import annotations

import logging
import os
import resource
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from anyaccel.op_builder.deepspeed.transfers import AsyncIOError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def handle(module: Any, backend: str) -> Any:
    return module.aio_handle(65536, 8, False, True, 4, backend=backend)


class Library:
    """The library of a handle, with a function in place of one of its own."""

    def __init__(self, library: Any, name: str, replacement: Callable[[Any], Any]) -> None:
        self._library = library
        setattr(self, name, replacement(getattr(library, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)


def _replace(handle: Any, name: str, replacement: Callable[[Any], Any]) -> None:
    handle._in_flight._library = Library(handle._in_flight._library, name, replacement)


def _once(act: Callable[[], None], *, before: bool = False) -> Callable[[Any], Any]:
    """Return a replacement that acts around its first call, as a signal's handler may."""
    acted = []

    def replaced(function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            acts = not acted
            acted.append(1)
            if acts and before:
                act()
            result = function(*arguments)
            if acts and not before:
                act()
            return result

        return call

    return replaced


def _interrupt() -> None:
    raise KeyboardInterrupt


def _filled(value: int, size: int = 1 << 20) -> torch.Tensor:
    return torch.full((size,), value, dtype=torch.uint8)


def test_operations_on_the_same_bytes_take_effect_in_the_order_of_their_calls(handle: Any, tmp_path: Path) -> None:
    file = str(tmp_path / "file")
    handle.sync_pwrite(_filled(0), file)
    for _ in range(8):
        back = _filled(0)
        for value in (1, 2, 3):
            handle.async_pwrite(_filled(value), file)
        handle.async_pread(back, file)
        handle.async_pwrite(_filled(4, 1 << 18), file, 1000)
        assert handle.wait() == 5
        assert back.unique().tolist() == [3]
        expected = np.full(1 << 20, 3, np.uint8)
        expected[1000 : 1000 + (1 << 18)] = 4
        assert np.array_equal(np.fromfile(file, np.uint8), expected)


def test_reads_into_one_tensor_end_with_the_last(handle: Any, tmp_path: Path) -> None:
    for value in (1, 2):
        (tmp_path / str(value)).write_bytes(bytes([value]) * (1 << 20))
    for into in (_filled(0), _filled(0).view(1024, 1024).t()):  # the second is copied when it has been read
        for _ in range(8):
            handle.async_pread(into, str(tmp_path / "1"))
            handle.async_pread(into, str(tmp_path / "2"))
            handle.wait()
            assert into.unique().tolist() == [2]


def test_an_interruption_while_an_operation_starts_closes_no_file_under_it(handle: Any, tmp_path: Path) -> None:
    """The descriptor of a closed file would soon be another file's."""
    _replace(handle, "anyaccel_aio_start", _once(_interrupt))
    with pytest.raises(KeyboardInterrupt):
        handle.async_pwrite(_filled(65, 1 << 24), str(tmp_path / "mine"))
    (tmp_path / "victim").write_bytes(b"v" * 100)
    others = [os.open(tmp_path / "victim", os.O_RDWR) for _ in range(4)]
    assert handle.wait() == 1
    for descriptor in others:
        os.close(descriptor)
    assert (tmp_path / "victim").read_bytes() == b"v" * 100
    assert (tmp_path / "mine").read_bytes() == b"A" * (1 << 24)


def test_an_interruption_before_an_operation_starts_leaves_nothing(handle: Any, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    _replace(handle, "anyaccel_aio_start", _once(_interrupt, before=True))
    with pytest.raises(KeyboardInterrupt):
        handle.async_pwrite(_filled(65), str(tmp_path / "file"))
    assert len(os.listdir("/proc/self/fd")) == before
    assert handle.wait() == 0


@pytest.mark.parametrize("name", ["anyaccel_aio_wait", "anyaccel_aio_has_ended"])
def test_an_interruption_of_wait_loses_no_operation(handle: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"\1" * (1 << 20))
    before = len(os.listdir("/proc/self/fd"))
    tensors = [_filled(0).view(1024, 1024).t() for _ in range(3)]
    for tensor in tensors:
        handle.async_pread(tensor, str(tmp_path / "file"))
    _replace(handle, name, _once(_interrupt))
    with pytest.raises(KeyboardInterrupt):
        handle.wait()
    assert handle.wait() == 3
    assert all(tensor.all() for tensor in tensors)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("name", ["anyaccel_aio_start", "anyaccel_aio_wait", "anyaccel_aio_has_ended"])
def test_an_interrupted_blocking_call_is_reported_by_wait(handle: Any, tmp_path: Path, name: str) -> None:
    _replace(handle, name, _once(_interrupt))
    with pytest.raises(KeyboardInterrupt):
        handle.sync_pwrite(torch.ones(8), "/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        handle.wait()
    assert handle.sync_pwrite(torch.ones(8), str(tmp_path / "file")) == 1


@pytest.mark.parametrize("name", ["anyaccel_aio_start", "anyaccel_aio_has_ended"])
def test_the_handler_of_a_signal_may_use_the_handle(handle: Any, tmp_path: Path, name: str) -> None:
    """A program that saves its state on SIGTERM; the handler runs in the thread that holds the handle's lock."""
    saved = []
    _replace(handle, name, _once(lambda: saved.append(handle.sync_pwrite(torch.ones(4), str(tmp_path / "saved")))))
    handle.async_pwrite(_filled(7), str(tmp_path / "file"))
    ended = handle.wait()
    assert sum(saved) + ended == 2
    assert (tmp_path / "saved").stat().st_size == 16
    assert (tmp_path / "file").read_bytes() == b"\7" * (1 << 20)


def test_blocking_calls_of_threads_report_their_own_operation(handle: Any, tmp_path: Path) -> None:
    found: dict[str, list[Any]] = {"full": [], "good": []}

    def call(kind: str, file: str) -> None:
        for _ in range(150):
            try:
                found[kind].append(handle.sync_pwrite(torch.ones(8), file))
            except OSError as error:
                found[kind].append(error.filename)

    threads = [threading.Thread(target=call, args=("full", "/dev/full"))]
    threads += [threading.Thread(target=call, args=("good", str(tmp_path / f"file{each}"))) for each in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"full": ["/dev/full"] * 150, "good": [1] * 300}
    assert handle.wait() == 0


def test_more_operations_than_the_process_may_have_files_open(handle: Any, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, before[1]))
    try:
        for number in range(200):
            handle.async_pwrite(_filled(number, 100), str(tmp_path / "file"), 100 * number)
        assert handle.wait() == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert (tmp_path / "file").read_bytes() == b"".join(bytes([number]) * 100 for number in range(200))


def test_of_several_failures_the_first_is_raised_and_the_others_are_logged(
    handle: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        handle.async_pwrite(torch.ones(8), "/dev/full")
    with pytest.raises(AsyncIOError, match="No space left on device"):
        handle.wait()
    assert caplog.text.count("another operation failed, too: [Errno 28]") == 2
    assert handle.wait() == 0


def test_a_failure_that_nobody_waited_for_is_logged(
    module: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    handle = module.aio_handle()
    handle.async_pwrite(torch.ones(8), "/dev/full")
    del handle
    assert "an aio_handle was dropped before wait(), and an operation failed: [Errno 28]" in caplog.text


@pytest.mark.parametrize(
    ("offset", "error"),
    [(4096.0, TypeError), ("0", TypeError), (-1, ValueError), (2**63 - 4, ValueError), (2**64, ValueError)],
)
def test_what_is_no_place_in_a_file_is_refused_and_nothing_is_moved(
    handle: Any, tmp_path: Path, offset: Any, error: type[Exception]
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"1" * 100)
    tensor = torch.full((2, 4), 7.0).t()
    for call in (handle.async_pread, handle.async_pwrite):
        with pytest.raises(error):
            call(tensor, str(file), offset)
    assert handle.wait() == 0
    assert tensor.unique().tolist() == [7.0]
    assert file.read_bytes() == b"1" * 100


def test_a_pipe_is_refused_without_waiting_for_its_other_end(handle: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for call in (handle.async_pread, handle.async_pwrite):
        with pytest.raises(OSError, match="a pipe or a socket; expected a file"):
            call(torch.ones(4), str(tmp_path / "pipe"))
    reader, writer = os.pipe()
    with pytest.raises(OSError, match="a pipe or a socket; expected a file"):
        handle.async_pwrite(torch.ones(4), fd=writer)
    os.close(reader)
    os.close(writer)


def test_a_descriptor_for_appending_is_written_where_it_is_asked_to(handle: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1" * 8)
    descriptor = os.open(tmp_path / "file", os.O_WRONLY | os.O_APPEND)
    handle.async_pwrite(_filled(50, 4), fd=descriptor)
    os.close(descriptor)  # the handle has its own
    assert handle.wait() == 1
    assert (tmp_path / "file").read_bytes() == b"22221111"


def test_a_descriptor_serves_where_its_file_cannot_be_opened_again(
    handle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has given up its privileges."""
    descriptor = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)

    def refuse(*_: Any, **__: Any) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "open", refuse)
    handle.async_pwrite(_filled(50, 4), fd=descriptor)
    monkeypatch.undo()
    assert handle.wait() == 1
    assert (tmp_path / "file").read_bytes() == b"2222"
    os.close(descriptor)


def test_a_file_is_compared_where_it_was_though_the_program_has_changed_its_folder(
    handle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    handle.pwrite(torch.ones(8), "file", True, True)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert handle.wait() == 1


def test_the_folder_of_the_program_may_be_gone(handle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for is_checked in (False, True):
        assert handle.pwrite(torch.ones(8), str(tmp_path / "file"), is_checked, False) == 1


def test_autograd_hears_of_a_read(handle: Any, tmp_path: Path) -> None:
    file = str(tmp_path / "file")
    handle.sync_pwrite(torch.zeros(8), file)
    leaf = torch.ones(8, requires_grad=True)
    used = leaf * 1
    product = (used * used).sum()
    handle.sync_pread(used, file)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
    with torch.inference_mode():
        into = torch.ones(8)
        assert handle.sync_pread(into, file) == 1
    assert not into.any()


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation:UserWarning")
def test_a_quantized_tensor_is_refused(handle: Any, tmp_path: Path) -> None:
    tensor = torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.quint8)
    with pytest.raises(ValueError, match=r"of the quantized dtype torch\.quint8"):
        handle.pwrite(tensor, str(tmp_path / "file"), True, False)
