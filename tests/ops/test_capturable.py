"""Optimizers in a graph: what a replay repeats, and what it reads again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from anyaccel.ops import FusedAdam, FusedLamb, FusedLion, FusedSGD

from .conftest import PRESENT

if TYPE_CHECKING:
    from collections.abc import Callable

MAKERS: dict[str, Callable[..., Any]] = {
    "FusedAdam": FusedAdam,
    "FusedLamb": FusedLamb,
    "FusedLion": FusedLion,
    "FusedSGD": lambda params, **options: FusedSGD(params, momentum=0.9, **options),
}


class RecordedGraph(TorchDispatchMode):
    """The CPU's equivalent of a CUDA graph: the calls that reached the device, with their addresses, and no Python between them.

    A replay writes each call's results to the capture's addresses. A call that brings a number to the host ends the capture, as
    on a GPU.
    """

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[Any, list[Any], Any, list[torch.Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            msg = "a number was brought to the host in a capture"
            raise AssertionError(msg)
        flat, spec = tree_flatten((args, kwargs or {}))
        result = func(*args, **(kwargs or {}))
        self._calls.append((func, flat, spec, [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]))
        return result

    def replay(self) -> None:
        for func, flat, spec, results in self._calls:
            args, kwargs = tree_unflatten(flat, spec)
            again = [leaf for leaf in tree_leaves(func(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]
            for old, new in zip(results, again, strict=True):
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], RecordedGraph]:
    def capture(step: Callable[[], Any]) -> RecordedGraph:
        with monkeypatch.context() as patch, RecordedGraph() as graph:
            patch.setattr(torch.cpu, "is_current_stream_capturing", lambda: True, raising=False)
            step()
        return graph

    return capture


def _parameters() -> list[torch.nn.Parameter]:
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(shape)) for shape in ((3, 5), (7,), ())]
    for param in params:
        param.grad = torch.randn_like(param)
    return params


def _new_gradients(params: list[torch.nn.Parameter], number: int) -> None:
    torch.manual_seed(number)
    for param in params:
        assert param.grad is not None
        param.grad.copy_(torch.randn(param.shape))


@pytest.mark.parametrize("name", MAKERS)
def test_each_replay_takes_the_next_step_with_the_learning_rate_of_the_moment(name: str, capturing: Any) -> None:
    plain, captured = _parameters(), _parameters()
    lr = torch.tensor(0.1)
    theirs, mine = MAKERS[name](plain, lr=0.1), MAKERS[name](captured, lr=lr, capturable=True)
    theirs.step()
    mine.step()
    graph = capturing(mine.step)  # a recording also takes its step
    theirs.step()
    for number in range(5):
        lr.fill_(0.1 / (number + 1))
        theirs.param_groups[0]["lr"] = 0.1 / (number + 1)
        _new_gradients(plain, number)
        _new_gradients(captured, number)
        theirs.step()
        graph.replay()
    torch.testing.assert_close(captured, plain, rtol=1e-6, atol=1e-7)
    for one, other in zip(plain, captured, strict=True):
        if "step" in theirs.state[one]:
            assert theirs.state[one]["step"] == mine.state[other]["step"] == 7


def test_a_step_that_the_flag_skips_is_not_counted(capturing: Any) -> None:
    """Like torch's fused AdamW; if the host counts, it cannot see the flag."""
    params = _parameters()
    flag = torch.zeros(1, dtype=torch.int32)
    optimizer = FusedAdam(params, capturable=True)
    optimizer.step(noop_flag=flag)
    graph = capturing(lambda: optimizer.step(noop_flag=flag))
    flag.fill_(1)
    before = [param.clone() for param in params]
    graph.replay()
    assert [optimizer.state[param]["step"].item() for param in params] == [2.0] * 3
    assert all(torch.equal(old, new) for old, new in zip(before, params, strict=True))
    flag.fill_(0)
    graph.replay()
    assert [optimizer.state[param]["step"].item() for param in params] == [3.0] * 3


@pytest.mark.skipif("cuda" not in PRESENT, reason="no NVIDIA GPU")
@pytest.mark.parametrize("name", MAKERS)
def test_a_cuda_graph_replays_the_next_step(name: str) -> None:
    """The same with a real CUDA graph, which rejects calls that a recording on the CPU allows."""
    plain, captured = ([torch.nn.Parameter(param.detach().cuda()) for param in _parameters()] for _ in range(2))
    for param in (*plain, *captured):
        param.grad = torch.ones_like(param)
    lr = torch.tensor(0.1, device="cuda")
    theirs, mine = MAKERS[name](plain, lr=0.1), MAKERS[name](captured, lr=lr, capturable=True)
    theirs.step()
    mine.step()
    graph = torch.cuda.CUDAGraph()  # anyaccel: ignore[runtime-call]
    with torch.cuda.graph(graph):  # anyaccel: ignore[runtime-call]
        mine.step()
    for number in range(5):
        lr.fill_(0.1 / (number + 1))
        theirs.param_groups[0]["lr"] = 0.1 / (number + 1)
        theirs.step()
        graph.replay()
    torch.testing.assert_close(captured, plain, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", MAKERS)
def test_the_first_step_is_refused_in_a_capture(name: str, capturing: Any) -> None:
    """A replay would initialise the states again."""
    params = _parameters()
    optimizer = MAKERS[name](params, capturable=True)
    before = [param.detach().clone() for param in params]
    with pytest.raises(RuntimeError, match=r"got the first step of a parameter .* Fix: take a step before the capture"):
        capturing(optimizer.step)
    assert not any(optimizer.state.values())
    assert all(torch.equal(old, new) for old, new in zip(before, params, strict=True))


def test_a_learning_rate_elsewhere_is_refused() -> None:
    optimizer = FusedAdam(_parameters(), capturable=True)
    optimizer.param_groups[0]["lr"] = torch.tensor(0.1, device="meta")
    with pytest.raises(ValueError, match="got lr=a tensor on meta; expected a number or a tensor on cpu"):
        optimizer.step()
    assert not any(optimizer.state.values())


def test_state_dicts_go_both_ways_between_capturable_and_not() -> None:
    first, second = _parameters(), _parameters()
    plain, capturable = FusedAdam(first, lr=0.1), FusedAdam(second, lr=0.1, capturable=True)
    plain.step()
    options = [{**group, "params": list(range(3))} for group in capturable.param_groups]
    capturable.load_state_dict({"state": plain.state_dict()["state"], "param_groups": options})
    with torch.no_grad():
        for one, other in zip(first, second, strict=True):
            other.copy_(one)
    plain.step()
    capturable.step()
    torch.testing.assert_close(first, second, rtol=1e-6, atol=1e-7)
    theirs = torch.optim.AdamW(_parameters(), lr=0.1)
    theirs.load_state_dict(capturable.state_dict())
    assert theirs.state_dict()["state"][0]["step"] == 2
