"""Builders with deepspeed's names that compile nothing return modules with deepspeed 0.19.8's function names and arguments."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from anyaccel import get_accelerator
from anyaccel.op_builder import OpError
from anyaccel.op_builder.all_ops import builder_class

NAMES = {
    "PinMemoryBuilder": "pin_memory",
    "RandomLTDBuilder": "random_ltd",
    "SpatialInferenceBuilder": "spatial_inference",
    "UtilsBuilder": "utils",
}
"""deepspeed's builders, and the names of their ops."""


def _load(name: str) -> Any:
    return get_accelerator().create_op_builder(name).load()


@pytest.mark.parametrize("name", NAMES)
def test_every_device_has_the_builder_and_it_needs_no_compiler(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    for device in ("cpu", "cuda", "xpu"):
        mine = builder_class(name, device)
        assert mine is not None
        assert (mine.__name__, mine.NAME) == (name, NAMES[name])
        assert mine().is_compatible()
        assert mine().load() is mine().jit_load()
    with pytest.raises(OpError, match="the op has no native code"):
        mine().builder()


# Token dropping.


def _kept(*shape: int, tokens: int) -> torch.Tensor:
    """Return token numbers, unique in each row, unordered."""
    rows = [torch.randperm(tokens)[: shape[-1]] for _ in range(torch.Size(shape[:-1]).numel())]
    return torch.stack(rows).view(shape).int()


@pytest.mark.parametrize(
    ("layers", "batch", "kept", "tokens"), [(3, 2, 5, 9), (1, 1, 1, 1), (2, 3, 0, 4), (1, 2, 7, 7)]
)
def test_tokens_are_sorted_in_place(layers: int, batch: int, kept: int, tokens: int) -> None:
    numbers = _kept(layers, batch, kept, tokens=tokens)
    expected = [[sorted(row) for row in layer] for layer in numbers.tolist()]
    assert _load("RandomLTDBuilder").token_sort_(numbers, tokens) is numbers
    assert numbers.tolist() == expected


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("is_strided", [False, True])
def test_rows_are_gathered_and_scattered(batch_first: bool, dtype: torch.dtype, is_strided: bool) -> None:
    module = _load("RandomLTDBuilder")
    batch, tokens, kept, channels = 3, 7, 4, 5
    shape = (batch, tokens) if batch_first else (tokens, batch)
    whole = (
        torch.randn(*shape, 2 * channels).to(dtype)[..., ::2] if is_strided else torch.randn(*shape, channels).to(dtype)
    )
    numbers = module.token_sort_(_kept(1, batch, kept, tokens=tokens), tokens)[0]
    rows = module.token_gather(whole, numbers, batch_first)
    assert rows.is_contiguous()
    assert rows.shape == ((batch, kept, channels) if batch_first else (kept, batch, channels))
    expected = whole.clone()
    for sequence in range(batch):
        for place, token in enumerate(numbers[sequence].tolist()):
            there = (sequence, token) if batch_first else (token, sequence)
            here = (sequence, place) if batch_first else (place, sequence)
            assert torch.equal(rows[here], whole[there])
            expected[there] = 2 * rows[here]
    assert module.token_scatter_(whole, 2 * rows, numbers, batch_first) is whole
    assert torch.equal(whole, expected)


def test_masks_are_gathered() -> None:
    module = _load("RandomLTDBuilder")
    layers, batch, tokens, kept = 2, 3, 6, 4
    mask = torch.rand(batch, 1, tokens, tokens)
    numbers = _kept(layers, batch, kept, tokens=tokens)
    found = module.mask_gather_bert(mask, numbers)
    assert found.shape == (layers, batch, 1, kept, kept)
    for layer in range(layers):
        for sequence in range(batch):
            for i, row in enumerate(numbers[layer, sequence].tolist()):
                for j, column in enumerate(numbers[layer, sequence].tolist()):
                    assert found[layer, sequence, 0, i, j] == mask[sequence, 0, row, column]
    shorter = module.mask_gather_gpt(mask, kept)
    assert shorter.is_contiguous()
    assert torch.equal(shorter, mask[:, :, :kept, :kept])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m: m.token_sort_(torch.zeros(1, 1, 3), 9), "token_sort_ failed: got token numbers of shape"),
        (lambda m: m.token_sort_(torch.zeros(1, 1, 3, dtype=torch.int32), 2), "got 3 kept tokens of 2"),
        (lambda m: m.token_sort_(torch.tensor([[[1, -1]]]), 6), "got token numbers below 0 or above 5"),
        (lambda m: m.token_sort_(torch.tensor([[[1, 6]]]), 6), "got token numbers below 0 or above 5"),
        (lambda m: m.token_gather(torch.ones(2, 3), torch.zeros(2, 1).int(), True), "expected three dimensions"),
        (lambda m: m.token_gather(torch.ones(2, 3, 4), torch.zeros(3, 1).int(), True), "for a batch of 3; expected 2"),
        (lambda m: m.token_gather(torch.ones(2, 3, 4), torch.zeros(2, 1).int(), False), "for a batch of 2; expected 3"),
        (
            lambda m: m.token_scatter_(torch.ones(2, 3, 4), torch.ones(2, 2, 4), torch.zeros(2, 1).int(), True),
            r"got rows of shape \(2, 2, 4\)",
        ),
        (lambda m: m.mask_gather_bert(torch.ones(2, 2, 4, 4), torch.zeros(1, 2, 1).int()), "expected .batch, 1,"),
        (lambda m: m.mask_gather_gpt(torch.ones(2, 1, 4, 4), 5), "got truncated_seq_len=5 and a mask of 4"),
    ],
)
def test_token_numbers_that_do_not_fit_are_refused(call: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call(_load("RandomLTDBuilder"))


def test_a_token_that_is_not_there_writes_nothing() -> None:
    whole = torch.ones(1, 3, 2)
    with pytest.raises(IndexError, match="got token numbers from 0 to 3; expected 0 to 2"):
        _load("RandomLTDBuilder").token_scatter_(whole, torch.zeros(1, 2, 2), torch.tensor([[0, 3]]), True)
    assert torch.equal(whole, torch.ones(1, 3, 2))


@pytest.mark.parametrize("number", [-1, 5])
def test_a_mask_of_a_token_that_is_not_there_is_refused(number: int) -> None:
    with pytest.raises(IndexError, match="mask_gather_bert failed: got token numbers from"):
        _load("RandomLTDBuilder").mask_gather_bert(torch.ones(1, 1, 5, 5), torch.tensor([[[0, number]]]))


def test_rows_that_share_memory_are_not_scattered_to() -> None:
    whole = torch.zeros(1, 5, 3)
    with pytest.raises(RuntimeError, match="whose elements share memory"):
        _load("RandomLTDBuilder").token_scatter_(
            whole.expand(2, 5, 3), torch.ones(2, 2, 3), torch.tensor([[0, 1], [2, 3]]), True
        )
    assert not whole.any()


# Biases of images.


@pytest.mark.parametrize("shape", [(2, 6, 3, 5), (2, 7, 6), (0, 6, 3, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_biases_are_added_to_each_channel(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """In the order of deepspeed's kernel, rounding each sum to the dtype."""
    module = _load("SpatialInferenceBuilder")
    x, other = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
    if len(shape) == 4:
        x, other = (tensor.to(memory_format=torch.channels_last) for tensor in (x, other))
    bias, other_bias = torch.randn(6).to(dtype), torch.randn(6).to(dtype)

    def added(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return (left.double() + right.double()).to(dtype)

    def of_channels(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view(6, 1, 1).expand(shape) if len(shape) == 4 else tensor.expand(shape)

    one, two = of_channels(bias), of_channels(other_bias)
    found = [
        module.nhwc_bias_add(x, bias),
        module.nhwc_bias_add_add(x, bias, other),
        module.nhwc_bias_add_bias_add(x, bias, other, other_bias),
    ]
    expected = [added(x, one), added(x, added(one, other)), added(added(x, one), added(other, two))]
    for mine, wanted in zip(found, expected, strict=True):
        assert torch.equal(mine, wanted)
        assert mine.stride() == x.stride() or mine.numel() == 0
    if len(shape) == 4:
        assert module.nhwc_bias_add_add(x, bias, other.contiguous()).stride() == x.stride() or x.numel() == 0


def test_images_that_do_not_fit_are_refused() -> None:
    module = _load("SpatialInferenceBuilder")
    x = torch.ones(1, 4, 2, 2)
    with pytest.raises(ValueError, match=r"nhwc_bias_add failed: got a bias of shape \(2,\)"):
        module.nhwc_bias_add(x, torch.ones(2))
    with pytest.raises(ValueError, match=r"got a bias of .* torch.float16; expected .4,. and torch.float32"):
        module.nhwc_bias_add(x, torch.ones(4).half())
    with pytest.raises(ValueError, match=r"got an activation of shape \(4,\)"):
        module.nhwc_bias_add(torch.ones(4), torch.ones(4))
    with pytest.raises(ValueError, match="nhwc_bias_add_add failed: got other of shape"):
        module.nhwc_bias_add_add(x, torch.ones(4), torch.ones(4))


# Host memory.


def _locked_kib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmLck")))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_locked_memory_is_locked_until_it_is_freed(dtype: torch.dtype) -> None:
    before = _locked_kib()
    handle = _load("PinMemoryBuilder").pin_handle()
    tensor = handle.new_cpu_locked_tensor(3 * resource.getpagesize(), torch.empty(0, dtype=dtype))
    assert (tensor.dtype, tensor.shape) == (dtype, (3 * resource.getpagesize(),))
    assert tensor.data_ptr() % resource.getpagesize() == 0
    assert _locked_kib() - before == tensor.nbytes // 1024
    assert handle.is_pinned(tensor)
    assert handle.is_pinned(tensor[5:9].view(2, 2))
    assert not handle.is_pinned(tensor.clone())
    tensor.fill_(1)
    assert handle.free_cpu_locked_tensor(tensor)
    assert _locked_kib() == before
    assert not handle.is_pinned(tensor)
    assert not handle.free_cpu_locked_tensor_by_ptr(tensor.data_ptr())
    assert torch.equal(tensor, torch.ones_like(tensor))  # deepspeed's would be in freed memory


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").is_dir(), reason="no transparent huge pages")
def test_locked_memory_asks_for_huge_pages() -> None:
    """A disk reads 2 to 3 times as fast into them; memory shared with forked processes rarely gets any."""
    tensor = get_accelerator().create_op_builder("PinMemoryBuilder").load().pin_handle().new_cpu_locked_tensor(
        8 << 20, torch.empty(0, dtype=torch.uint8)
    )  # fmt: skip
    flags: list[str] = []
    holds = False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        first = line.split(maxsplit=1)[0]
        if "-" in first and not first.endswith(":"):
            begin, end = (int(part, 16) for part in first.split("-"))
            holds = begin <= tensor.data_ptr() < end
        elif holds and first == "VmFlags:":
            flags = line.split()[1:]
    assert {"hg", "lo"} <= set(flags)
    assert "sh" not in flags


def test_locked_memory_is_released_with_its_last_view() -> None:
    before = _locked_kib()
    handle = _load("PinMemoryBuilder").pin_handle()
    view = handle.new_cpu_locked_tensor(4096, torch.empty(0))[8:16]
    gc.collect()
    assert _locked_kib() > before
    address = view.data_ptr() - 32
    del view
    gc.collect()
    assert _locked_kib() == before
    assert not handle.free_cpu_locked_tensor_by_ptr(address)


def test_an_empty_locked_tensor_is_a_tensor() -> None:
    module = _load("PinMemoryBuilder")
    handle = module.pin_handle()
    assert isinstance(handle, module.pin_handle)
    tensor = handle.new_cpu_locked_tensor(0, torch.empty(0))
    assert tensor.shape == (0,)
    with pytest.raises(ValueError, match="got -1 elements"):
        handle.new_cpu_locked_tensor(-1, torch.empty(0))
    for size in (1 << 58, 1 << 64):
        with pytest.raises(OSError, match=rf"allocating {4 * size} bytes of locked memory failed.*Fix: allocate less"):
            handle.new_cpu_locked_tensor(size, torch.empty(0))


def test_a_limit_of_locked_memory_is_an_error_that_names_it() -> None:
    code = """
import os, resource, torch
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
from anyaccel.op_builder.deepspeed.host_memory import MemoryLockError, PinMemoryModule
if os.getuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
handle = PinMemoryModule().pin_handle()
small = handle.new_cpu_locked_tensor(1024, torch.empty(0))
try:
    handle.new_cpu_locked_tensor(1 << 20, torch.empty(0))
except MemoryLockError as error:
    print(error)
print(handle.is_pinned(small))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=False)
    assert ran.returncode == 0, ran.stderr
    said, is_pinned = ran.stdout.splitlines()
    assert "mlock of 4194304 bytes failed" in said
    assert "with a limit of 65536 bytes of locked memory" in said
    assert is_pinned == "True"


def test_a_tensor_is_seen_as_bytes() -> None:
    module = _load("UtilsBuilder")
    tensors = [
        torch.randn(3, 5),
        torch.arange(7),
        torch.randn(2, 2).bfloat16(),
        torch.zeros(0),
        torch.tensor([3], dtype=torch.int8),
    ]
    seen = module.cast_to_byte_tensor(tensors)
    for tensor, found in zip(tensors[:3], seen, strict=False):
        assert (found.dtype, found.dim()) == (torch.uint8, 1)
        assert bytes(found.tolist()) == bytes(tensor.untyped_storage().tolist())
        found.zero_()
        assert not tensor.any()
    assert seen[3] is tensors[3]
    assert seen[4] is tensors[4]
    assert torch.equal(module.cast_to_byte_tensor(torch.ones(2)), torch.ones(2).view(torch.uint8))
    dense = torch.arange(24.0).view(1, 2, 3, 4)
    for tensor in (dense.transpose(2, 3), dense.to(memory_format=torch.channels_last)):
        found = module.cast_to_byte_tensor(tensor)
        assert bytes(found.tolist()) == bytes(tensor.untyped_storage().tolist())
        assert found.data_ptr() == tensor.data_ptr()
    for tensor in (dense[..., ::2], torch.ones(1).expand(4)):
        with pytest.raises(ValueError, match="expected a tensor without gaps in its memory"):
            module.cast_to_byte_tensor(tensor)
    for lazy in (torch._neg_view(torch.ones(3)), torch.ones(3, dtype=torch.complex64).conj()):
        with pytest.raises(ValueError, match="lazily negated or conjugated"):
            module.cast_to_byte_tensor(lazy)


def test_a_compiled_copy_of_memory_is_one_graph() -> None:
    module = builder_class("AsyncIOBuilder", "cpu")().load()  # type: ignore[misc]
    dest, src = torch.zeros(3), torch.ones(3)
    torch.compile(module.deepspeed_memcpy, fullgraph=True, backend="eager")(dest, src)
    assert torch.equal(dest, src)


def test_tensors_are_flattened_and_seen_again() -> None:
    module = _load("UtilsBuilder")
    tensors = [torch.randn(3, 5), torch.randn(()), torch.randn(0, 2), torch.randn(4)]
    flat = module.flatten(tensors)
    assert flat.tolist() == [number for tensor in tensors for number in tensor.flatten().tolist()]
    again = module.unflatten(flat, tensors)
    assert all(torch.equal(mine, wanted) for mine, wanted in zip(again, tensors, strict=True))
    flat.zero_()
    assert not again[0].any()
