"""Ranks that end as soon as they have what they came for, while slower ones have not returned from the same operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .ranks import Scripts

SLOW_HOST = """
# Ranks of the first host share a core with a thread that never rests, so that they return after the others have ended.
os.environ["ANYACCEL_SHM_HOST"] = hosts[rank]
busy = None
if hosts[rank] == hosts[0]:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    busy = os.fork() if rank == 0 else None
    if busy == 0:
        parent = os.getppid()
        while os.getppid() == parent: pass
        os._exit(0)
    os.nice(5)
operations = {
    "nothing": lambda group: None,
    "barrier": lambda group: dist.barrier(group),
    "few numbers": lambda group: dist.all_reduce(torch.ones(3), group=group),
    "many numbers": lambda group: dist.all_reduce(torch.ones(100_000), group=group),
    "reduce": lambda group: dist.reduce(torch.ones(1000), 0, group=group),
    "broadcast": lambda group: dist.broadcast(torch.ones(1000), 0, group=group),
    "gather": lambda group: dist.all_gather([torch.empty(1000) for _ in range(world)], torch.ones(1000), group=group),
    "exchange": lambda group: dist.all_to_all_single(torch.empty(1000 * world), torch.ones(1000 * world), group=group),
    "scatter": lambda group: dist.reduce_scatter(torch.empty(1000), [torch.ones(1000)] * world, group=group),
    "objects": lambda group: dist.all_gather_object([None] * world, rank, group=group),
}
def end():
    if busy: os.kill(busy, 9)
    say("right")
    os._exit(0)
"""


@pytest.mark.parametrize("name", ["nothing", "barrier", "few numbers", "gather", "exchange"])
@pytest.mark.parametrize("hosts", ["aab", "abc"])
def test_an_operation_is_complete_on_all_when_it_is_on_one(scripts: Scripts, hosts: str, name: str) -> None:
    scripts.start(f"hosts = {hosts!r}\n{SLOW_HOST}start()\noperations[{name!r}](None)\nend()\n", 3)
    assert scripts.outputs() == ["right\n"] * 3


@pytest.mark.parametrize("hosts", ["aab", "aabb"])
def test_groups_that_are_destroyed_after_each_operation(scripts: Scripts, hosts: str) -> None:
    scripts.start(
        f"""
hosts = {hosts!r}
{SLOW_HOST}
start()
for operation in operations.values():
    for _ in range(2):
        group = dist.new_group(backend="shm")
        operation(group)
        dist.destroy_process_group(group)
dist.destroy_process_group()
end()
""",
        len(hosts),
    )
    assert scripts.outputs() == ["right\n"] * len(hosts)


def test_no_rank_has_a_group_before_all_are_connected(scripts: Scripts) -> None:
    scripts.start(
        """
os.environ["ANYACCEL_SHM_HOST"] = "abb"[rank]
from anyaccel.distributed import shm
if rank == 0:
    make = shm.ProcessGroupGloo
    def late(*args, **options):
        made = make(*args, **options)
        time.sleep(0.5)
        open(store + ".connected", "a").write("x")
        return made
    shm.ProcessGroupGloo = late
start()
say(open(store + ".connected").read())
""",
        3,
    )
    assert scripts.outputs() == ["xx\n"] * 3  # between the first ranks of the hosts, and between all
