"""ZenFlow's Adam: steps in another thread or process, driven through shared memory that deepspeed's code also reads."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from anyaccel.op_builder.cpu import CPUAdamBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GROUPS = 3


@pytest.fixture
def op() -> Iterator[Any]:
    found = CPUAdamBuilder().load()
    found.create_adam(77, adamw_mode=True)
    yield found
    found.destroy_adam(77)


def _tensors(count: int = GROUPS) -> list[tuple[torch.Tensor, ...]]:
    """Return for each group the parameter, two gradients, two first and two second moments, and the stale copy."""
    torch.manual_seed(0)
    shapes = [(5,), (3, 4), (1,)][:count]
    return [
        (torch.randn(shape), *torch.randn(2, *shape), *torch.zeros(4, *shape), torch.zeros(shape)) for shape in shapes
    ]


def _submit(op: Any, control: torch.Tensor, state: int, step: int, groups: int = GROUPS) -> None:
    options = ([0.1] * groups, [0.9] * groups, [0.99] * groups, [1e-6] * groups, [0.01] * groups, [True] * groups)
    op.zenflow_adam_submit(control.data_ptr(), state, step, *options)


def _opened(op: Any, groups: list[tuple[torch.Tensor, ...]]) -> tuple[int, torch.Tensor]:
    handle = op.zenflow_adam_create(77, [])
    for tensors in groups:
        op.zenflow_adam_register_group(handle, *tensors)
    control = torch.zeros(op.zenflow_adam_ctrl_size(), dtype=torch.uint8).share_memory_()
    op.zenflow_adam_ctrl_init(control.data_ptr(), len(groups))
    return handle, control


def test_steps_in_another_thread_are_torchs(op: Any) -> None:
    groups = _tensors()
    theirs = [tensors[0].clone().requires_grad_() for tensors in groups]
    expected = torch.optim.AdamW(theirs, lr=0.1, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.01)
    handle, control = _opened(op, groups)
    worker = threading.Thread(target=op.zenflow_adam_run_worker, args=(handle, control.data_ptr()))
    worker.start()
    for step in (1, 2, 3):
        _submit(op, control, 0, step)
        for param, tensors in zip(theirs, groups, strict=True):
            param.grad = tensors[1].clone()
        expected.step()
        assert op.zenflow_adam_wait(control.data_ptr(), 30.0)
    op.zenflow_adam_ctrl_exit(control.data_ptr())
    worker.join(30)
    assert not worker.is_alive()
    for param, (mine, *_, stale) in zip(theirs, groups, strict=True):
        torch.testing.assert_close(mine, param.detach(), rtol=1e-5, atol=1e-6)
        assert torch.equal(stale, mine)
    op.zenflow_adam_destroy(handle)


def test_each_state_has_gradients_and_moments_of_its_own(op: Any) -> None:
    groups = _tensors(1)
    handle, control = _opened(op, groups)
    worker = threading.Thread(target=op.zenflow_adam_run_worker, args=(handle, control.data_ptr()))
    worker.start()
    _submit(op, control, 1, 1, groups=1)
    assert op.zenflow_adam_wait(control.data_ptr(), 30.0)
    op.zenflow_adam_ctrl_exit(control.data_ptr())
    worker.join(30)
    _, _, grad1, exp_avg0, exp_avg1, exp_avg_sq0, exp_avg_sq1, _ = groups[0]
    assert not exp_avg0.any()
    assert not exp_avg_sq0.any()
    torch.testing.assert_close(exp_avg1, 0.1 * grad1)
    torch.testing.assert_close(exp_avg_sq1, 0.01 * grad1 * grad1)
    op.zenflow_adam_destroy(handle)


def test_waiting_ends_when_its_time_is_over(op: Any) -> None:
    handle, control = _opened(op, _tensors())
    began = time.monotonic()
    assert op.zenflow_adam_wait(control.data_ptr(), 0.2) is False
    assert 0.15 < time.monotonic() - began < 20
    op.zenflow_adam_destroy(handle)


def test_what_was_not_opened_is_refused_by_name(op: Any) -> None:
    with pytest.raises(KeyError, match=r"got optimizer 12345; expected one of .*77.*create_adam\(12345"):
        op.zenflow_adam_create(12345, [])
    with pytest.raises(KeyError, match=r"zenflow_adam_run_worker failed: got handle 99999"):
        op.zenflow_adam_run_worker(99999, 0)
    with pytest.raises(ValueError, match=r"got 1025 groups; expected up to 1024"):
        op.zenflow_adam_ctrl_init(0, 1025)


IN_A_PROCESS = """
import multiprocessing, os, sys
import torch
from anyaccel.op_builder.cpu import CPUAdamBuilder

def work(param, grad, control, ready):
    op = CPUAdamBuilder().load()
    op.create_adam(0, adamw_mode=True)
    handle = op.zenflow_adam_create(0, sorted(os.sched_getaffinity(0))[:1])
    op.zenflow_adam_register_group(handle, param, grad, grad, *torch.zeros(4, 4), None)
    ready.set()
    op.zenflow_adam_run_worker(handle, control.data_ptr())
    assert len(os.sched_getaffinity(0)) == 1
    op.zenflow_adam_destroy(handle)

if __name__ == "__main__":
    op = CPUAdamBuilder().load()
    context = multiprocessing.get_context("spawn")
    param, grad = torch.ones(4).share_memory_(), torch.ones(4).share_memory_()
    control = torch.zeros(op.zenflow_adam_ctrl_size(), dtype=torch.uint8).share_memory_()
    op.zenflow_adam_ctrl_init(control.data_ptr(), 1)
    ready = context.Event()
    process = context.Process(target=work, args=(param, grad, control, ready))
    process.start()
    assert ready.wait(60)
    for step in (1, 2):
        op.zenflow_adam_submit(control.data_ptr(), 0, step, [0.5], [0.9], [0.999], [0.0], [0.0], [1])
        assert op.zenflow_adam_wait(control.data_ptr(), 60.0)
    op.zenflow_adam_ctrl_exit(control.data_ptr())
    process.join(60)
    assert process.exitcode == 0
    assert torch.allclose(param, torch.zeros(4), atol=1e-5), param
"""


def test_two_processes_share_the_block(
    tmp_path_factory: pytest.TempPathFactory, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    file = tmp_path_factory.mktemp("zenflow") / "program.py"
    file.write_text(IN_A_PROCESS)
    run_with_torch(f"import runpy; runpy.run_path({str(file)!r}, run_name='__main__')")


ORPHANED = IN_A_PROCESS.replace(
    "    for step in (1, 2):", "    print(process.pid, flush=True)\n    os._exit(0)\n    for step in ():"
)


def test_the_process_of_steps_ends_when_the_trainer_is_gone(tmp_path: Path) -> None:
    _require_its_end(tmp_path, ORPHANED)


def _require_its_end(tmp_path: Path, program: str) -> None:
    (tmp_path / "program.py").write_text(program)
    log = tmp_path / "log"
    with log.open("w") as output:
        subprocess.run([sys.executable, tmp_path / "program.py"], stdout=output, stderr=output, check=True, timeout=120)
    pid = int(log.read_text().split()[-1])
    deadline = time.monotonic() + 30
    with contextlib.suppress(OSError):  # it has ended
        while Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
            assert time.monotonic() < deadline, f"process {pid} still waits for steps"
            time.sleep(0.1)


def test_a_process_whose_trainer_ended_before_it_waits_ends_too(tmp_path: Path) -> None:
    late = ORPHANED.replace(
        "    op.zenflow_adam_run_worker(", "    __import__('time').sleep(1.5)\n    op.zenflow_adam_run_worker("
    )
    assert late != ORPHANED
    _require_its_end(tmp_path, late)


def test_the_block_is_laid_out_as_deepspeeds() -> None:
    """Either side may be deepspeed's own, so its struct counts: two semaphores, four numbers, 1024 groups of five and one."""
    from anyaccel.kernels.functions.zenflow_adam import _Control

    offsets = [getattr(_Control, name).offset for name, *_ in _Control._fields_]
    assert offsets == [0, 32, 64, 68, 72, 80, 84, 84 + 4 * 5 * 1024]
    assert CPUAdamBuilder().load().zenflow_adam_ctrl_size() == 21592
