"""How programs select shm: names, device maps, debug mode, launchers, and several hosts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .ranks import Scripts

ROOT = Path(__file__).parents[2]


def test_it_serves_the_cpu_beside_other_backends(scripts: Scripts) -> None:
    scripts.start(
        """
        start(backend="cpu:shm,cuda:gloo")
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        x = torch.ones(3)
        dist.all_reduce(x)
        dist.destroy_process_group()
        store += "2"
        start(backend="gloo")
        group = dist.new_group(backend="shm")
        dist.all_reduce(x, group=group)
        say(backend.name(), dist.get_backend(), dist.get_backend(group), x.tolist())
        """,
        2,
    )
    assert scripts.outputs() == ["shm gloo shm [4.0, 4.0, 4.0]\n"] * 2


def test_the_accelerator_names_it_where_the_environment_asks(scripts: Scripts) -> None:
    """Without a change to the program."""
    scripts.start(
        """
        import anyaccel
        name = anyaccel.get_accelerator().communication_backend_name()
        start(backend=name)
        x = torch.ones(3)
        dist.all_reduce(x)
        say(name, x.tolist())
        """,
        2,
        ANYACCEL_CPU_BACKEND="shm",
    )
    assert scripts.outputs() == ["shm [2.0, 2.0, 2.0]\n"] * 2


def test_debug_mode_wraps_it(scripts: Scripts) -> None:
    scripts.start(
        """
        dist.set_debug_level_from_env()
        start(10)
        x = torch.ones(3)
        dist.all_reduce(x)
        dist.all_reduce(x, async_op=True).wait()
        say(x.tolist(), type(dist.group.WORLD._get_backend(torch.device("cpu"))).__name__)
        say(error_of(lambda: dist.all_reduce(torch.ones(3 + rank))))
        """,
        2,
        TORCH_DISTRIBUTED_DEBUG="DETAIL",
    )
    for output in scripts.outputs():
        assert "[4.0, 4.0, 4.0] _ProcessGroupWrapper" in output
        assert "ALLREDUCE" in output  # torch's own comparison names the operation


SPANNING = """
start()
x = torch.full((1000,), rank + 1.0)
dist.all_reduce(x)
assert x.eq(sum(range(1, world + 1))).all()
x = torch.full((7,), rank + 1)
dist.all_reduce(x, dist.ReduceOp.MAX, async_op=True).wait()
assert x.eq(world).all()
x = torch.full((7,), float(rank))
dist.all_reduce(x, dist.ReduceOp.AVG)
assert x.eq((world - 1) / 2).all()
for root in range(world):
    x = torch.full((5, 4), float(rank)).t()
    dist.broadcast(x, root)
    assert x.eq(root).all()
outputs = [torch.empty(3) for _ in range(world)]
dist.all_gather(outputs, torch.full((3,), float(rank)))
assert [output.unique().item() for output in outputs] == [float(one) for one in range(world)]
flat = torch.empty(world * 3)
dist.all_gather_into_tensor(flat, torch.full((3,), float(rank)))
assert torch.equal(flat, torch.cat(outputs))
part = torch.empty(4)
dist.reduce_scatter_tensor(part, torch.arange(4.0 * world))
assert torch.equal(part, world * torch.arange(4.0 * world).view(world, 4)[rank])
objects = [None] * world
dist.all_gather_object(objects, rank)
assert objects == list(range(world))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
model(torch.ones(1, 3) * (rank + 1)).sum().backward()
assert model.module.weight.grad.eq((world + 1) / 2).all()
for kind, op in ((torch.int8, dist.ReduceOp.AVG), (torch.int64, dist.ReduceOp.AVG), (torch.float64, dist.ReduceOp.MIN)):
    x = torch.full((5,), 10, dtype=kind)
    dist.all_reduce(x, op)
    assert x.eq(10).all(), x
x = torch.full((3,), rank, dtype=torch.uint16)
dist.broadcast(x, world - 1)
assert x.tolist() == [world - 1] * 3
dist.all_reduce(x)
assert x.tolist() == [world * (world - 1)] * 3
for wrong in (lambda: dist.all_reduce(torch.ones(10 + rank)), lambda: dist.broadcast(torch.ones(3), rank)):
    text = error_of(wrong)
    assert "expected the same on every rank" in text and f"rank {world - 1}:" in text, text
dist.barrier()
for size in (3, 100_000):
    sent = dist.isend(torch.full((size,), float(rank)), (rank + 1) % world)
    x = torch.zeros(2, size).t()[:, 0]
    dist.recv(x, (rank - 1) % world)
    sent.wait()
    assert x.eq((rank - 1) % world).all()
say("right")
dist.destroy_process_group()
"""


@pytest.mark.parametrize("hosts", ["aab", "abab", "abc"])
def test_ranks_on_several_pretended_hosts(scripts: Scripts, hosts: str) -> None:
    script = f"os.environ['ANYACCEL_SHM_HOST'] = {hosts!r}[rank]\n" + SPANNING
    scripts.start(script, len(hosts))
    assert scripts.outputs() == ["right\n"] * len(hosts)


def test_paths_tell_how_ranks_reach_each_other(scripts: Scripts) -> None:
    scripts.start(
        """
        os.environ["ANYACCEL_SHM_HOST"] = "xxy"[rank]
        start()
        for one in anyaccel.distributed.paths(): say(one.ranks, one.way, one.reason)
        try: anyaccel.distributed.paths(dist.new_group(backend="gloo"))
        except ValueError as error: say(error)
        dist.barrier()  # else gloo may still be connecting to a rank that has ended
        """,
        3,
    )
    differ = "gloo they differ in value of ANYACCEL_SHM_HOST (x and y)"
    shared, *apart, refused = scripts.outputs()[0].splitlines()
    assert shared == "(0, 1) memory the ranks share memory"
    assert apart == [f"(0, 2) {differ}", f"(1, 2) {differ}"]
    assert refused.startswith("paths failed: got a group on gloo; expected one on shm.")


@pytest.mark.parametrize("hosts", ["aaa", "aab", "aba"])
def test_a_group_is_split(scripts: Scripts, hosts: str) -> None:
    """By ``ProcessGroup.split_group``; ``dist.split_group`` asks for an accelerator's backend before it comes to that."""
    scripts.start(
        f"""
        os.environ["ANYACCEL_SHM_HOST"] = {hosts!r}[rank]
        start()
        world_group = dist.group.WORLD
        part = world_group.split_group([0, 2], timeout=timedelta(seconds=20), group_desc="two")
        x = torch.full((3,), rank + 1.0)
        if rank != 1:
            part.allreduce([x]).wait()
            say(part.rank(), part.size(), x.tolist())
            again = part.split_group([1])
            say(None if again is None else again.size())
        else:
            say(part)
        y = torch.ones(2)
        dist.all_reduce(y)
        say(y.tolist(), world_group._get_backend(torch.device("cpu")).supports_splitting)
        """,
        3,
    )
    last = "[3.0, 3.0] True"
    first, out, second = scripts.outputs()
    assert first.splitlines() == ["0 2 [4.0, 4.0, 4.0]", "None", last]
    assert out.splitlines() == ["None", last]
    assert second.splitlines() == ["1 2 [4.0, 4.0, 4.0]", "1", last]


def test_a_device_mesh_has_it_beside_a_name_for_another_device(scripts: Scripts) -> None:
    """As ``cpu:shm,cuda:nccl`` does where there is CUDA, with a device_id."""
    scripts.start(
        """
        start(backend="cpu:shm,cuda:gloo")
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
        sums = []
        for name in mesh.mesh_dim_names:
            x = torch.tensor([float(rank)])
            dist.all_reduce(x, group=mesh.get_group(name))
            sums.append(x.item())
            assert [one.way for one in anyaccel.distributed.paths(mesh.get_group(name))] == ["memory"]
        say(sums)
        """,
        4,
    )
    assert scripts.outputs() == ["[2.0, 1.0]\n", "[4.0, 1.0]\n", "[2.0, 5.0]\n", "[4.0, 5.0]\n"]


def test_a_group_between_hosts_is_left_at_once(scripts: Scripts) -> None:
    """With operations pending, with and without destroying the group."""
    scripts.start(
        """
        os.environ["ANYACCEL_SHM_HOST"] = str(rank)
        start(20)
        dist.barrier()
        if rank == 0:
            work = dist.all_reduce(torch.ones(3), async_op=True)
            began = time.perf_counter()
            dist.destroy_process_group()
            assert time.perf_counter() - began < 10
        say("left")
        """,
        2,
    )
    assert scripts.outputs() == ["left\n"] * 2


def test_a_store_serves_one_group_after_another(scripts: Scripts) -> None:
    scripts.start(
        """
        kept = dist.FileStore(store, world)
        for turn in range(4):
            dist.init_process_group("shm", store=kept, rank=rank, world_size=world, timeout=timedelta(seconds=20))
            x = torch.ones(2)
            dist.all_reduce(x)
            assert [one.way for one in anyaccel.distributed.paths()] == ["memory"]
            dist.destroy_process_group()
        say(x.tolist())
        """,
        2,
    )
    assert scripts.outputs() == ["[2.0, 2.0]\n"] * 2


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_ranks_in_two_network_namespaces(tmp_path: Path) -> None:
    """Two hosts, except for the boot id: neither can reach the other's local sockets, only its network."""
    if shutil.which("ip") is None:
        pytest.skip("no ip command")
    from .ranks import PROLOGUE

    arguments = "rank, world = int(sys.argv[1]), 3\nos.environ.update(GLOO_SOCKET_IFNAME=sys.argv[2])\n"
    begin = (
        'dist.init_process_group("shm", init_method="tcp://10.213.7.1:29555", rank=rank, world_size=world, '
        "timeout=timedelta(seconds=30))"
    )
    script = tmp_path / "rank.py"
    script.write_text(PROLOGUE + arguments + SPANNING.replace("start()", begin))
    run = f"{sys.executable} -W ignore {script}"
    shell = f"""
        set -e
        ip netns add anyaccel-a; ip netns add anyaccel-b
        trap 'ip netns del anyaccel-a; ip netns del anyaccel-b' EXIT
        ip link add veth-aa netns anyaccel-a type veth peer name veth-ab netns anyaccel-b
        ip -n anyaccel-a addr add 10.213.7.1/24 dev veth-aa; ip -n anyaccel-a link set veth-aa up
        ip -n anyaccel-b addr add 10.213.7.2/24 dev veth-ab; ip -n anyaccel-b link set veth-ab up
        ip -n anyaccel-a link set lo up; ip -n anyaccel-b link set lo up
        ip netns exec anyaccel-a {run} 0 veth-aa & ip netns exec anyaccel-a {run} 1 veth-aa &
        ip netns exec anyaccel-b {run} 2 veth-ab & wait
    """
    finished = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False, timeout=120)
    missing = ("Operation not permitted", "Operation not supported", "Permission denied", "Unknown device type")
    if any(text in finished.stderr for text in missing):
        pytest.skip(f"no network namespaces here: {finished.stderr}")
    assert finished.stdout.count("right") == 3, finished.stderr  # lines of three processes on one pipe may mix


SLOW_TO_GREET = """
from anyaccel.distributed import shm
class Slow(dist.Store):
    # Rank 1 connects, and sleeps before it says who it is.
    def __init__(self): super().__init__(); self.inner, self.has_slept = dist.FileStore(store, world), False
    def set(self, key, value): return self.inner.set(key, value)
    def get(self, key): return self.inner.get(key)
    def add(self, key, number): return self.inner.add(key, number)
    def check(self, keys):
        if rank == 1 and "shm/met/0" in keys[0] and not self.has_slept:
            self.has_slept = True
            time.sleep({seconds})
        return self.inner.check(keys)
    def wait(self, *arguments): return self.inner.wait(*arguments)
if rank == 0 and {signals}:
    import signal
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
say(error_of(lambda: shm.create(Slow(), rank, world, timedelta(seconds=40), [0, 1, 2])))
"""


@pytest.mark.parametrize(("seconds", "signals"), [(6, False), (1, True)])
def test_a_rank_may_be_slow_to_greet_and_signals_may_come_meanwhile(
    scripts: Scripts, seconds: int, signals: bool
) -> None:
    scripts.start(SLOW_TO_GREET.format(seconds=seconds, signals=signals), 3)
    assert scripts.outputs() == ["no error\n"] * 3


OUT_OF_MEMORY = """
import resource
from anyaccel.distributed import shm
shm._module()
if rank == {who}:
    size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 20),) * 2)
began = time.monotonic()
say(error_of(lambda: shm.create(dist.FileStore(store, world), rank, world, timedelta(seconds=50), [0, 1, 2])))
say(time.monotonic() - began < 25)
"""


@pytest.mark.parametrize("who", [0, 2])
def test_a_rank_that_cannot_map_the_memory_says_why_to_the_others(scripts: Scripts, who: int) -> None:
    """They do not wait for it until their timeout."""
    scripts.start(OUT_OF_MEMORY.format(who=who), 3)
    for rank, output in enumerate(scripts.outputs()):
        assert "Cannot allocate memory" in output
        assert rank == who or f"rank {who} of this host cannot share memory" in output
        assert output.endswith("True\n")
