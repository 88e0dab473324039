"""What names a file for an ``aio_handle``: paths and descriptors, and what is refused."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch

from anyaccel.op_builder.deepspeed.transfers import AsyncIOError, opened

if TYPE_CHECKING:
    from pathlib import Path


def test_a_descriptor_that_cannot_be_written_is_refused(handle: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1" * 16)
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    with pytest.raises(OSError, match=f"got descriptor {descriptor}, which is closed or for reading only"):
        handle.async_pwrite(torch.zeros(4), descriptor)
    os.close(descriptor)
    with pytest.raises(OSError, match=f"got descriptor {descriptor}, which is closed or for reading only"):
        handle.async_pwrite(torch.zeros(4), descriptor)
    assert (tmp_path / "file").read_bytes() == b"1" * 16


def test_a_descriptor_is_read_if_it_is_for_reading(handle: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1" * 16)
    tensor = torch.zeros(16, dtype=torch.uint8)
    for_reading, for_writing = (os.open(tmp_path / "file", flags) for flags in (os.O_RDONLY, os.O_WRONLY))
    handle.sync_pread(tensor, for_reading)
    assert bytes(tensor.tolist()) == b"1" * 16
    with pytest.raises(
        OSError, match=f"reading failed: got descriptor {for_writing}, which is closed or for writing only"
    ):
        handle.sync_pread(tensor, for_writing)
    with pytest.raises(ValueError, match=f"got validate=True for descriptor {for_writing}; expected the path"):
        handle.pwrite(torch.zeros(4), for_writing, True, False)
    os.close(for_reading)
    os.close(for_writing)
    assert (tmp_path / "file").read_bytes() == b"1" * 16


@pytest.mark.parametrize("file", [None, True, 1.5])
def test_what_names_no_file_is_refused(handle: Any, file: Any) -> None:
    with pytest.raises(TypeError, match=r"as a file; expected a path, or an open descriptor"):
        handle.sync_pwrite(torch.zeros(4), file)


def test_a_block_device_has_a_size_and_a_character_device_no_end(handle: Any, tmp_path: Path) -> None:
    zeros = torch.ones(4096, dtype=torch.uint8)
    assert handle.sync_pread(zeros, "/dev/zero", 1 << 40) == 1
    assert not zeros.any()
    (tmp_path / "disk").write_bytes(bytes(1 << 16))
    if shutil.which("losetup") is None:
        pytest.skip("no losetup, which makes a block device of a file")
    made = subprocess.run(["losetup", "-f", "--show", tmp_path / "disk"], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip("only root makes a block device of a file")
    device = made.stdout.strip()
    try:
        written, read = torch.randint(255, (1 << 16,), dtype=torch.uint8), torch.zeros(1 << 16, dtype=torch.uint8)
        handle.sync_pwrite(written[4096:], device, 4096)
        handle.sync_pread(read[4096:], device, 4096)
        assert torch.equal(read[4096:], written[4096:])
        handle.read(read, device, False)
        assert torch.equal(read[4096:], written[4096:])
        with pytest.raises(AsyncIOError, match="got end of file"):
            handle.sync_pread(read, device, 1)
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


def test_a_synchronous_descriptor_stays_one(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT | os.O_DSYNC)
    files: list[int] = []
    opened(descriptor, False, files)
    assert all(fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DSYNC for file in files)
    for file in (*files, descriptor):
        os.close(file)


def test_what_is_being_written_can_be_read(handle: Any, tmp_path: Path) -> None:
    """Operations on the same bytes take effect in the order of their calls, also where the file is still to grow."""
    file, written, read = str(tmp_path / "file"), torch.randn(1 << 20), torch.empty(1 << 20)
    handle.async_pwrite(written, file)
    handle.async_pread(read, file)
    assert handle.wait() == 2
    assert torch.equal(written, read)
    with pytest.raises(AsyncIOError, match="end of file"):
        handle.async_pread(read, file, 4)


@pytest.mark.parametrize(
    ("start", "is_written"), [(0, False), (4096, False), (8192, True), (12288, True), (20480, False)]
)
def test_a_read_beyond_the_end_needs_a_write_that_it_waits_for(
    handle: Any, tmp_path: Path, start: int, is_written: bool
) -> None:
    for number in range(10):
        file = str(tmp_path / f"{number}")
        (tmp_path / f"{number}").touch()
        handle.async_pwrite(torch.ones(8192, dtype=torch.uint8), file, 8192 + 4096)
        read = torch.empty(4096 if start != 8192 else 8192, dtype=torch.uint8)
        begun = 2
        try:
            handle.async_pread(read, file, start)
        except AsyncIOError as error:
            assert not is_written  # which may also have ended before the call
            assert "end of file" in str(error)  # noqa: PT017
            begun = 1
        assert handle.wait() == begun
        if is_written:
            assert read.tolist() == [0] * (8192 - len(read) + 4096 if start == 8192 else 0) + [1] * 4096


def test_what_has_no_plain_memory_is_refused(handle: Any, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its interface may change
        ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    for call in (handle.sync_pwrite, handle.sync_pread):
        with pytest.raises(ValueError, match="starting a transfer failed: got a tensor that is nested"):
            call(ragged, str(tmp_path / "file"))
    (tmp_path / "file").write_bytes(b"1" * 16)
    descriptor = os.open(tmp_path / "file", os.O_PATH)
    with pytest.raises(OSError, match=f"got descriptor {descriptor}, which is closed or for writing only"):
        handle.sync_pread(torch.zeros(4), descriptor)
    os.close(descriptor)


def test_an_empty_tensor_and_a_path_of_bytes_are_compared(handle: Any, tmp_path: Path) -> None:
    handle.pwrite(torch.empty(0), str(tmp_path / "empty"), True, True)
    handle.pwrite(torch.ones(4), os.fsencode(tmp_path / "file"), True, False)
    assert handle.wait() == 0


def test_a_dropped_handle_completes_what_was_read(module: Any, backend: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(range(1, 13)))
    read = torch.zeros(4, 3, dtype=torch.uint8).t()
    handle = module.aio_handle(backend=backend)
    handle.async_pread(read, str(tmp_path / "file"))
    del handle
    assert read.flatten().tolist() == list(range(1, 13))


def test_a_folder_is_refused(handle: Any, tmp_path: Path) -> None:
    for call in (handle.sync_pread, handle.sync_pwrite):
        with pytest.raises(IsADirectoryError, match="a folder; expected a file"):
            call(torch.zeros(4), str(tmp_path))
