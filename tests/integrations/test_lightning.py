"""The real Lightning trains on accelerators that it does not know: the simulated device, and on the CPU as before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

EXAMPLE = Path(__file__).parents[2] / "examples" / "simulated_device"

PROGRAM = """
import logging, pickle, sys, warnings
warnings.simplefilter("ignore")
for package in ("pytorch_lightning", "lightning_fabric"):
    logging.getLogger(package).setLevel(logging.ERROR)
sys.path.insert(0, sys.argv[1])
import torch
from anyaccel import CPU_Accelerator, TorchAccelerator
from anyaccel.accelerator.errors import SelectionError
from anyaccel.integrations.lightning import register


def refused(call, *expected):
    try:
        call()
    except SelectionError as error:
        assert all(part in str(error) for part in expected), error
    else:
        raise AssertionError("not refused")


refused(lambda: register(CPU_Accelerator()), "import Lightning before")

import pytorch_lightning as pl
from lightning_fabric import Fabric
import simdev


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 1)
        self.seen = []

    def training_step(self, batch):
        x, y = batch
        made = self.net(x)
        loss = (made.float() - y).square().mean()
        self.seen.append((str(self.net.weight.device), str(x.device), made.dtype, loss.item()))
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.1)


def fit(name, path=None, epochs=2, **options):
    torch.manual_seed(0)
    x = torch.randn(8, 4)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)
    model = Net()
    trainer = pl.Trainer(accelerator=name, max_epochs=epochs, logger=False, enable_checkpointing=False,
                         enable_progress_bar=False, enable_model_summary=False, **options)
    trainer.fit(model, loader, ckpt_path=path)
    return model.seen, trainer


def losses(seen):
    return [step[3] for step in seen]


def close(found, expected, tolerance=1e-5):
    return len(found) == len(expected) > 0 and all(abs(a - b) <= tolerance * (1 + abs(b)) for a, b in zip(found, expected))


import functools
connector = pl.trainer.connectors.accelerator_connector._AcceleratorConnector
choose = connector._choose_strategy
connector._choose_strategy = functools.wraps(choose)(lambda self: choose(self))  # another library's wrapper, before ours
cpu, trainer = fit(register(CPU_Accelerator()))
assert type(trainer.accelerator) is pl.accelerators.CPUAccelerator and cpu[0][:2] == ("cpu", "cpu")

name = register(TorchAccelerator("simdev"))
assert name == register() == "simdev"  # again, and by detection
seen, trainer = fit(name, devices=[1])
assert {step[:3] for step in seen} == {("simdev:1", "simdev:1", torch.float32)}, seen
assert close(losses(seen), losses(cpu)), (seen, cpu)
assert trainer.accelerator.get_device_stats("simdev:1")["allocated_bytes.all.peak"] > 0
assert pickle.loads(pickle.dumps(trainer.accelerator)).auto_device_count() == 2  # as a spawned process makes it again

half, trainer = fit(name, devices="0,", precision="bf16-mixed")
assert {step[:3] for step in half} == {("simdev:0", "simdev:0", torch.bfloat16)}, half
assert trainer.precision_plugin.device == "simdev" and close(losses(half), losses(cpu), 2e-2)
assert fit("cpu", precision="bf16-mixed")[1].precision_plugin.device == "cpu"

_, first = fit(name, devices=1, epochs=1)
first.save_checkpoint("saved.ckpt")
resumed, _ = fit(name, "saved.ckpt", devices=1)
assert close(losses(resumed), losses(cpu)[2:]), (resumed, cpu)

fabric = Fabric(accelerator=name, devices=1, precision="bf16-mixed")
torch.manual_seed(0)
net, optimizer = fabric.setup(model := torch.nn.Linear(4, 1), torch.optim.AdamW(model.parameters(), lr=0.1))
x = fabric.to_device(torch.ones(2, 4))
fabric.backward(net(x).square().mean())
optimizer.step()
assert str(fabric.device) == str(net.weight.grad.device) == "simdev:0"
with fabric.autocast():
    assert (x @ x.T).dtype is torch.bfloat16

for devices in (0, 3, -2, [2], "0,0", "two"):
    refused(lambda: type(trainer.accelerator).parse_devices(devices), repr(devices), "'simdev' has 2 here")
for devices in ([0.9], [True], [None]):
    refused(lambda: type(trainer.accelerator).parse_devices(devices), "'simdev' has 2 here")
assert type(trainer.accelerator).parse_devices(-1) == type(trainer.accelerator).parse_devices("2") == [0, 1]
refused(lambda: pl.Trainer(accelerator=name, devices=2, logger=False), "got 2 devices", "'ddp' needs CUDA's streams", "devices=1")
refused(lambda: pl.Trainer(accelerator=name, devices=1, num_nodes=2, logger=False), "got several nodes", "num_nodes=1")
refused(lambda: fit(name, devices=1, strategy=pl.strategies.SingleDeviceStrategy(device="cpu")), "got 'cpu'", "'simdev:0'")

del pl.trainer.connectors.accelerator_connector._AcceleratorConnector._choose_strategy
refused(lambda: register(TorchAccelerator("simdev")), pl.__version__, "is unknown here")
print("trained")
"""


def test_trainer_and_fabric_train_on_a_device_that_lightning_does_not_know(
    run_with_torch: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    assert run_with_torch(PROGRAM, str(EXAMPLE)).stdout.endswith("trained\n")
