"""The tests that a vendor runs: the contract, and torch's own functions and a training program on the device.

python -m pytest examples/simulated_device
"""

from __future__ import annotations

import copy
import gc
import io
import threading

import pytest
import simdev  # noqa: F401  # registers the device
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from anyaccel import TorchAccelerator
from anyaccel.ops import FusedAdam, FusedLamb, FusedLion, FusedSGD, clip_grad_norm_
from anyaccel.testing import AcceleratorContract

ACCELERATOR = TorchAccelerator("simdev")


class TestContract(AcceleratorContract):
    @pytest.fixture
    def accelerator(self):
        return TorchAccelerator("simdev")


@pytest.fixture(autouse=True)
def first_device():
    yield
    torch.simdev.set_device(0)


def same(simulated, expected):
    torch.testing.assert_close(simulated.cpu(), expected)


def test_torch_names_it_the_accelerator():
    assert torch.accelerator.current_accelerator() == torch.device("simdev")
    assert torch.accelerator.device_count() == 2
    with torch.accelerator.device_index(1):
        assert torch.accelerator.current_stream().device.index == 1
    assert torch.accelerator.get_memory_info(1)[1] == 1 << 30


def test_what_its_module_lacks_is_torch_accelerators():
    functions = (
        "memory_allocated",
        "max_memory_reserved",
        "memory_stats",
        "reset_peak_memory_stats",
        "empty_cache",
        "set_stream",
        "current_stream",
        "stream",
        "synchronize",
        "Stream",
        "Event",
    )
    assert not [name for name in functions if hasattr(torch.simdev, name)]
    assert all(map(ACCELERATOR.supports, functions))
    tensor = torch.empty(1000, device="simdev:1")
    assert ACCELERATOR.memory_allocated(1) == torch.accelerator.memory_allocated(1) >= 4096
    assert ACCELERATOR.memory_stats(1) == torch.accelerator.memory_stats(1)
    assert tensor.device.index == 1
    assert not ACCELERATOR.supports("MemPool")


def test_the_current_device_is_where_tensors_without_an_index_are_made():
    with torch.simdev.device(1):
        made = [torch.ones(2, device="simdev"), torch.ones(2).to("simdev"), torch.ones(2).simdev()]
        assert [tensor.device.index for tensor in made] == [1, 1, 1]
    assert torch.ones(2, device="simdev").device.index == 0
    tensor = torch.ones(3, device="simdev:1").resize_(1000)
    assert (tensor + 1).device.index == tensor.untyped_storage().device.index == 1


@pytest.mark.parametrize("call", [ACCELERATOR.synchronize, torch.simdev.set_device, torch.simdev.device])
def test_an_index_of_no_device_is_refused(call):
    with pytest.raises((IndexError, RuntimeError)):
        call(7).__enter__()


def test_memory_is_counted_cached_and_limited():
    gc.collect()
    ACCELERATOR.empty_cache()
    before = ACCELERATOR.memory_allocated(1)
    tensor = torch.empty(1000, device="simdev:1")
    assert ACCELERATOR.memory_allocated(1) - before == 4096
    del tensor
    assert ACCELERATOR.memory_allocated(1) == before
    assert ACCELERATOR.memory_reserved(1) >= before + 4096
    ACCELERATOR.empty_cache()
    assert ACCELERATOR.memory_reserved(1) == before
    with pytest.raises(torch.OutOfMemoryError, match="expected at most"):
        torch.empty(1 << 30, device="simdev:1")


def losses(device, make_optimizer):
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 8), nn.LayerNorm(8)
    model = nn.Sequential(*layers).to(device)
    inputs, targets = torch.randn(16, 3, 8, 8).to(device), torch.randint(0, 8, (16,)).to(device)
    optimizer = make_optimizer(model.parameters())
    for _ in range(5):
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield loss.item()


@pytest.mark.parametrize("options", [{}, {"fused": True}, {"foreach": False}], ids=["foreach", "fused", "plain"])
def test_training_has_the_cpus_losses(options):
    def make(parameters):
        return torch.optim.AdamW(parameters, 1e-2, **options)

    assert list(losses("simdev:1", make)) == pytest.approx(list(losses("cpu", make)), rel=1e-4)


@pytest.mark.parametrize("optimizer", [FusedAdam, FusedLamb, FusedLion, FusedSGD])
def test_our_optimizers_change_the_parameters_of_a_device_without_kernels_of_ours(optimizer):
    def make(parameters):
        return optimizer(parameters, lr=1e-2)

    assert list(losses("simdev:1", make)) == pytest.approx(list(losses("cpu", make)), rel=1e-4)


def test_our_clipping_scales_gradients_of_a_device_without_kernels_of_ours():
    parameter = nn.Parameter(torch.zeros(2, device="simdev:1"))
    parameter.grad = torch.tensor([3.0, 4.0], device="simdev:1")
    assert clip_grad_norm_(parameter, max_norm=1.0).item() == 5.0
    same(parameter.grad, torch.tensor([0.6, 0.8]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_mixed_precision(dtype):
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 1)).to("simdev:1")
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), ACCELERATOR.grad_scaler(init_scale=8.0)
    with ACCELERATOR.autocast(dtype=dtype):
        outputs = model(torch.randn(4, 8, device="simdev:1"))
        assert outputs.dtype == dtype
        assert torch.softmax(outputs, -1).dtype == torch.float32
    scaler.scale(outputs.float().square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 8.0


def test_random_numbers_are_the_devices_own():
    torch.manual_seed(5)
    of_host = torch.get_rng_state()
    first, second = torch.rand(4, device="simdev:0"), torch.rand(4, device="simdev:1")
    same(first, second.cpu())
    for draw in (torch.randn, torch.randperm):
        draw(3, device="simdev")
    nn.functional.dropout(torch.ones(9, device="simdev"))
    assert torch.equal(of_host, torch.get_rng_state())
    generator = torch.Generator("simdev:1").manual_seed(3)
    drawn = torch.rand(4, device="simdev:1", generator=generator)
    same(drawn, torch.rand(4, device="simdev:1", generator=generator.manual_seed(3)).cpu())
    with pytest.raises(RuntimeError, match="expected one of simdev"):
        torch.rand(2, device="simdev", generator=torch.Generator())


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpoint_recomputes_with_the_same_random_numbers(use_reentrant):
    ones = torch.ones(64, device="simdev:1", requires_grad=True)
    dropped = checkpoint(nn.functional.dropout, ones, use_reentrant=use_reentrant)
    dropped.sum().backward()
    same(ones.grad, dropped.detach().cpu())


def written_through_views(device):
    tensor = torch.zeros(4, 6, device=device)
    tensor[1:3, ::2] = 1
    tensor.view(-1)[0] = 5
    tensor.t()[5, 3] = 7
    tensor.unfold(1, 2, 2)[0, 1, 1] = 9
    tensor.as_strided((2,), (1,), 6)[1] = 3
    return tensor


def test_views_share_memory():
    same(written_through_views("simdev:1"), written_through_views("cpu"))


def test_conjugate_views_are_copied_as_what_they_show():
    values = torch.tensor([1 + 2j, 3j])
    same(values.to("simdev").conj(), values.conj().resolve_conj())
    same(values.to("simdev").conj().to("simdev:1").imag.neg(), values.imag)


def test_tensors_of_two_devices_do_not_mix():
    here, there = torch.ones(2, device="simdev:0"), torch.ones(2, device="simdev:1")
    for operate in (lambda: here + there, lambda: here + torch.ones(2), lambda: torch.cat([here, there])):
        with pytest.raises(RuntimeError, match="same device"):
            operate()
    same(here + torch.tensor(1.0), torch.full((2,), 2.0))
    same(there.copy_(here + 4), torch.full((2,), 5.0))


def test_copies_keep_to_torchs_rules():
    original = torch.ones(4, device="simdev")
    torch._lazy_clone(original).copy_(torch.zeros(4))
    same(original, torch.ones(4))
    with pytest.raises(RuntimeError, match="single memory location"):
        original[1:].copy_(original[:-1])
    with pytest.raises(RuntimeError, match="same device"):
        nn.functional.conv1d(torch.ones(1, 1, 4, device="simdev:1"), torch.ones(1, 1, 2, device="simdev:0"))


def test_tensors_are_saved_loaded_and_copied():
    model = nn.Linear(3, 2).to("simdev:1")
    assert copy.deepcopy(model).weight.device.index == 1
    saved = io.BytesIO()
    torch.save(model.state_dict(), saved)
    for where in ("simdev:0", "cpu"):
        loaded = torch.load(io.BytesIO(saved.getvalue()), map_location=where)["weight"]
        assert str(loaded.device) == where
        same(loaded, model.weight.detach().cpu())
    assert repr(torch.ones(2, device="simdev:1")) == "tensor([1., 1.], device='simdev:1')"


def test_streams_belong_to_a_thread_and_a_device():
    stream, seen = ACCELERATOR.Stream(device="simdev:1"), []
    with ACCELERATOR.stream(stream):
        assert ACCELERATOR.current_stream(1) == stream
        assert ACCELERATOR.current_device() == 1
        thread = threading.Thread(target=lambda: seen.append(ACCELERATOR.current_stream(1)))
        thread.start()
        thread.join()
    assert seen == [ACCELERATOR.default_stream(1)] == [ACCELERATOR.current_stream(1)]
    event = ACCELERATOR.Event(enable_timing=True)
    event.record(stream)
    event.synchronize()
    assert event.query()
    ACCELERATOR.record_stream(torch.ones(3, device="simdev:1"), stream)


@pytest.mark.filterwarnings("ignore:The argument 'device' of Tensor")  # torch 2.10's own loader passes it
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_pins_its_batches(workers):
    data = TensorDataset(torch.arange(8.0))
    for (batch,) in DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers):
        assert batch.is_pinned()
        assert batch.to("simdev", non_blocking=True).sum().item() in (6, 22)


@pytest.mark.parametrize(
    "layer",
    [nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), nn.LSTM(16, 8, 2), nn.GRU(16, 8), nn.Linear(16, 2)],
    ids=lambda layer: type(layer).__name__,
)
def test_layers_compute_what_the_cpu_does(layer):
    inputs = torch.randn(5, 2, 16)
    of_host, of_device = copy.deepcopy(layer).eval(), copy.deepcopy(layer).to("simdev:1").eval()
    expected, found = of_host(inputs), of_device(inputs.to("simdev:1"))
    if isinstance(expected, tuple):
        expected, found = expected[0], found[0]
    same(found, expected)
    found.sum().backward()


def test_gradients_cross_devices():
    first = torch.ones(3, device="simdev:0", requires_grad=True)
    second = torch.ones(3, device="simdev:1", requires_grad=True)
    ((first * 2).to("simdev:1") * second).sum().backward()
    same(first.grad, torch.full((3,), 2.0))
    assert second.grad.device.index == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_code_asks_the_accelerator_without_a_graph_break(backend):
    def scaled(tensor):
        ACCELERATOR.synchronize()
        ACCELERATOR.current_stream()
        return (tensor * 2 + ACCELERATOR.device_count()).sum()

    torch._dynamo.reset()
    compiled = torch.compile(scaled, backend=backend, fullgraph=True)
    assert compiled(torch.ones(3, device="simdev:1", requires_grad=True)).item() == 12
