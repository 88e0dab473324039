"""Futures and their callbacks: they may block, wait for one another, and issue operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .ranks import Scripts

HOSTS = ("same", "apart")


def _begin(hosts: str) -> str:
    """Return the first lines of a script, for ranks that share memory or that simulate separate hosts."""
    return ("os.environ['ANYACCEL_SHM_HOST'] = str(rank)\n" if hosts == "apart" else "") + "start(40)\n"


@pytest.mark.parametrize("hosts", HOSTS)
def test_a_callback_may_wait_for_what_it_issues(scripts: Scripts, hosts: str) -> None:
    scripts.start(
        _begin(hosts)
        + """
x, y, z = torch.ones(3), torch.ones(3), torch.ones(3)
dist.barrier()
time.sleep(0.3 * rank)
inner = lambda f: dist.all_reduce(y, async_op=True).get_future().wait()
done = dist.all_reduce(x, async_op=True).get_future().then(inner)
done.wait()
def plain(f):
    dist.all_reduce(z)
    return dist.all_reduce(z, async_op=True).get_future().then(inner).wait()
dist.all_reduce(x, async_op=True).get_future().then(plain).wait()
say(x.tolist(), y.tolist(), z.tolist())
""",
        2,
    )
    assert scripts.outputs() == ["[4.0, 4.0, 4.0] [4.0, 4.0, 4.0] [4.0, 4.0, 4.0]\n"] * 2


@pytest.mark.parametrize("hosts", HOSTS)
def test_a_callback_may_wait_for_a_later_future(scripts: Scripts, hosts: str) -> None:
    scripts.start(
        _begin(hosts)
        + """
x, y = torch.ones(3), torch.ones(3)
dist.barrier()
if rank: time.sleep(0.2)
first = dist.all_reduce(x, async_op=True).get_future()
second = dist.all_reduce(y, async_op=True).get_future()
after = first.then(lambda f: second.wait()[0].sum().item())
say(after.wait())
""",
        2,
    )
    assert scripts.outputs() == ["6.0\n"] * 2


def test_a_callback_delays_no_other_groups_future(scripts: Scripts) -> None:
    scripts.start(
        """
start(40)
other, ready = dist.new_group(), dist.new_group()
slow = threading.Event()
if rank == 1:
    dist.barrier(group=ready)  # rank 0 hangs its callback on a future that is not complete
    slow.set()
def compute(f):  # another callback may overtake one that waits, but not this one
    until = time.monotonic() + 20
    while not slow.is_set() and time.monotonic() < until: pass
    return slow.is_set()
first = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(compute)
if rank == 0:
    dist.barrier(group=ready)
dist.all_reduce(torch.ones(3), group=other, async_op=True).get_future().wait()
assert rank == 1 or not first.done()
slow.set()
say(first.wait())
""",
        2,
    )
    assert scripts.outputs() == ["True\n"] * 2


def test_callbacks_of_a_group_issue_operations_in_one_order_on_every_rank(scripts: Scripts) -> None:
    """Each callback computes for a different time, and issues two operations that it waits for; the last rank sets the order."""
    scripts.start(
        """
start(40)
ready = dist.new_group()
order = []
def issue(number):
    for step in range(2):
        work = dist.all_reduce(torch.full((2,), float(number * 10 + step)), async_op=True)
        order.append(work.get_future().wait()[0][0].item() / world)
def callback(number):
    def run(f):
        if (rank + number) % 2: sum(range(400_000))
        issue(number)
    return run
if rank == 2: dist.barrier(group=ready)  # the others have hung their callbacks on what waits for this rank
works = [dist.all_reduce(torch.ones(2), async_op=True) for _ in range(4)]
if rank == 2:
    for number in range(4): issue(number)
else:
    futures = [work.get_future().then(callback(number)) for number, work in enumerate(works)]
    dist.barrier(group=ready)
    for future in futures: future.wait()
say(order)
""",
        3,
    )
    assert scripts.outputs() == [f"{[float(number * 10 + step) for number in range(4) for step in range(2)]}\n"] * 3


def test_a_callback_is_not_overtaken_while_its_own_future_waits_for_its_turn(scripts: Scripts) -> None:
    """The first callback waits for a future behind another one's slow callback; the second must not run before it ends."""
    scripts.start(
        """
start(40)
ready = dist.new_group()
seen = []
def first(f):
    seen.append("first begins")
    dist.all_reduce(torch.ones(3), async_op=True).get_future().then(lambda f: time.sleep(0.3))
    dist.all_reduce(torch.ones(3), async_op=True).get_future().wait()
    seen.append("first ends")
if rank == 1: dist.barrier(group=ready)  # rank 0 has hung its callbacks on what waits for this rank
works = [dist.all_reduce(torch.ones(3), async_op=True) for _ in range(2)]
if rank == 1:
    time.sleep(0.3)  # until the first callback waits: a future that is complete runs what is hung on it at once
    for _ in range(2): dist.all_reduce(torch.ones(3))
else:
    futures = [work.get_future().then(run) for work, run in zip(works, [first, lambda f: seen.append("second")])]
    dist.barrier(group=ready)
    for future in futures: future.wait()
    say(seen)
""",
        2,
    )
    assert scripts.outputs()[0] == "['first begins', 'first ends', 'second']\n"


def test_power_sgd_equals_gloo(scripts: Scripts) -> None:
    scripts.start(
        """
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
from torch.nn.parallel import DistributedDataParallel
start(40)
def losses(group):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 64) for _ in range(3)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), process_group=group)
    state = power.PowerSGDState(group, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=1)
    model.register_comm_hook(state, power.powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for step in range(8):
        batch = torch.randn(8, 64, generator=torch.Generator().manual_seed(step * 2 + rank))
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(round(loss.item(), 5))
    return found
mine = losses(dist.group.WORLD)
say(len(mine), mine == losses(dist.new_group(backend="gloo")))
""",
        2,
    )
    assert scripts.outputs() == ["8 True\n"] * 2
