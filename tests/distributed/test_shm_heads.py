"""Between hosts, the first bytes of parts are sent before the ranks agree. If they do not, nothing of it is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .ranks import Scripts

# Parts of `count` elements, whose values tell the round, the sender and the receiver.
PARTS = """
import itertools
rounds = itertools.count(1)
HEAD = (1 << 20) // 8  # of int64

def part(turn, sender, receiver, count):
    return torch.arange(count) + turn * 100_000_000 + sender * 10_000_000 + receiver * 1_000_000

def exchange(counts, taken=None):
    turn = next(rounds)
    taken = taken or [counts[one][rank] for one in range(world)]
    outputs = [torch.full((count,), -1) for count in taken]
    inputs = [part(turn, rank, one, counts[rank][one]) for one in range(world)]
    said = error_of(lambda: dist.all_to_all(outputs, inputs))
    if said == "no error":
        for one, output in enumerate(outputs):
            assert output.equal(part(turn, one, rank, counts[one][rank])), (turn, one, rank, output)
    else:
        assert all(output.eq(-1).all() for output in outputs), (turn, said)
        assert "the group can continue" in said, said
    return said
"""


@pytest.mark.parametrize("hosts", ["aab", "abc"])
def test_parts_are_right_whatever_their_length(scripts: Scripts, hosts: str) -> None:
    scripts.start(
        f"os.environ['ANYACCEL_SHM_HOST'] = {hosts!r}[rank]\nstart(30)\n{PARTS}"
        """
for count in (0, 1, HEAD - 1, HEAD, HEAD + 1, 2 * HEAD + 5):
    assert exchange([[count] * world] * world) == "no error"
lengths = [0, 7, HEAD, HEAD + 9, 3, 2 * HEAD, 0, HEAD - 1, 11]
assert exchange([lengths[world * one : world * (one + 1)] for one in range(world)]) == "no error"
turned = torch.arange(6 * HEAD).view(2, -1).t()[: 2 * HEAD]  # parts that are not contiguous
output = torch.zeros(2, 2 * HEAD, dtype=torch.int64).t()
dist.gather(turned, [torch.empty_like(output)] * world if rank == 2 else None, 2)
dist.scatter(output, [turned + one for one in range(world)] if rank == 2 else None, 2)
assert output.equal(turned + rank)
say("right")
""",
        3,
    )
    assert scripts.outputs() == ["right\n"] * 3


@pytest.mark.parametrize("hosts", ["aab", "abc"])
def test_parts_of_ranks_that_disagree_do_not_meet_later_ones(scripts: Scripts, hosts: str) -> None:
    """After each disagreement, parts of every length that was in it are exchanged, with other values."""
    scripts.start(
        f"os.environ['ANYACCEL_SHM_HOST'] = {hosts!r}[rank]\nstart(30)\n{PARTS}"
        """
def check(*counts):
    for count in counts: assert exchange([[count] * world] * world) == "no error"

for sent, expected in ((3, 4), (0, 5), (5, 0), (HEAD, HEAD + 1), (10, 2 * HEAD), (2 * HEAD, HEAD - 1)):
    for sender, receiver in ((2, 0), (0, 2), (1, 2)):
        counts = [[3] * world for _ in range(world)]
        counts[sender][receiver] = sent
        taken = [counts[one][rank] for one in range(world)]
        if rank == receiver: taken[sender] = expected
        said = exchange(counts, taken)
        assert f"{sent} elements that rank {sender} sends to rank {receiver}" in said, said
    check(*(count for count in (3, sent, expected) if count))

out = torch.full((8,), -1)
other = {
    "another operation": lambda: dist.all_reduce(torch.ones(3)),
    "several operations": lambda: dist.all_gather_coalesced([[torch.ones(2)] * world], [torch.ones(2)]),
    "gather": lambda: dist.gather(torch.ones(8, dtype=torch.int64), [out] * world if rank == 0 else None, 0),
    "scatter": lambda: dist.scatter(out, [torch.ones(8, dtype=torch.int64)] * world if rank == 2 else None, 2),
    "broadcast": lambda: dist.broadcast(out.clone(), 0),
    "broadcast from another rank": lambda: dist.broadcast(out.clone(), 2),
    "another dtype": lambda: dist.all_to_all([torch.ones(16, dtype=torch.int32)] * world, [torch.ones(16).int()] * world),
    "a refusal": lambda: dist.all_reduce(torch.ones(1).expand(3)),
}
for what, call in other.items():
    for faulty in range(world):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            said = error_of(call) if rank == faulty else exchange([[8] * world] * world)
        if rank == faulty: next(rounds)
        assert "failed: got" in said, (what, faulty, said)
        assert out.eq(-1).all(), what
        check(8)
for first in other.values():  # everyone does something else
    for second in other.values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            error_of((first, second, lambda: exchange([[8] * world] * world))[rank])
        if rank != 2: next(rounds)
        out.fill_(-1)
        check(8)
say("right")
""",
        3,
    )
    assert scripts.outputs() == ["right\n"] * 3


# Broadcasts of `count` elements, whose values tell the round and the root.
BROADCASTS = """
import itertools
rounds = itertools.count(1)
HEAD = (1 << 20) // 8 // (len(set(os.environ["HOSTS"])) - 1)  # of int64: what the root sends ahead

def broadcast(root, count, mine=None, dtype=torch.int64):
    turn = next(rounds)
    values = torch.arange(count if mine is None else mine) + turn * 100_000_000 + root * 10_000_000
    x = values.clone() if rank == root else torch.full_like(values, -1, dtype=dtype)
    before = x.clone()
    said = error_of(lambda: dist.broadcast(x, root))
    assert x.equal(values if said == "no error" else before), (turn, said, x)
    assert said == "no error" or "the group can continue" in said, said
    return said
"""


@pytest.mark.parametrize("hosts", ["aab", "abb", "abc"])
def test_broadcasts_are_right_whatever_their_length(scripts: Scripts, hosts: str) -> None:
    scripts.start(
        f"os.environ['HOSTS'] = {hosts!r}\nos.environ['ANYACCEL_SHM_HOST'] = {hosts!r}[rank]\nstart(30)\n{BROADCASTS}"
        """
for root in range(world):
    for count in (0, 1, HEAD - 1, HEAD, HEAD + 1, 2 * HEAD + 5):
        assert broadcast(root, count) == "no error"
    turned = torch.arange(6 * HEAD).view(2, -1).t()[: 2 * HEAD]  # not contiguous
    x = turned if rank == root else torch.zeros(2, 2 * HEAD, dtype=torch.int64).t()
    dist.broadcast(x, root)
    assert x.equal(turned)
    works = [dist.broadcast(torch.full((count,), root), root, async_op=True) for count in (1, 2 * HEAD, 3)]
    assert [work.result()[0].eq(root).all().item() for work in works if work.wait()] == [True] * 3
say("right")
""",
        3,
    )
    assert scripts.outputs() == ["right\n"] * 3


@pytest.mark.parametrize("hosts", ["aab", pytest.param("abb", marks=pytest.mark.slow), "abc"])
def test_broadcasts_of_ranks_that_disagree_do_not_meet_later_ones(scripts: Scripts, hosts: str) -> None:
    """After each disagreement, every length that was in it is sent from every root, with other values."""
    scripts.start(
        f"os.environ['HOSTS'] = {hosts!r}\nos.environ['ANYACCEL_SHM_HOST'] = {hosts!r}[rank]\nstart(30)\n{BROADCASTS}"
        """
def check(*counts):
    for root, count in itertools.product(range(world), counts):
        assert broadcast(root, count) == "no error"

for count, other in ((3, 4), (0, 5), (5, 0), (HEAD, HEAD + 1), (10, 2 * HEAD), (2 * HEAD, HEAD - 1)):
    for root, faulty in itertools.product(range(world), repeat=2):
        said = broadcast(root, count, other if rank == faulty else None)
        assert "failed: got" in said, said
        check(*(one for one in (3, count, other) if one))
for roots in itertools.product(range(world), repeat=world):
    said = broadcast(roots[rank], 8)
    assert (said == "no error") == (len(set(roots)) == 1), (roots, said)
    check(8)
for root, faulty in itertools.permutations(range(world), 2):
    assert "failed: got" in broadcast(root, 8, dtype=torch.int32 if rank == faulty else torch.int64)
    check(4, 8)
    if rank == faulty:
        next(rounds)
        said = error_of(lambda: dist.all_to_all([torch.ones(8).long()] * world, [torch.ones(8).long()] * world))
    else:
        said = broadcast(root, 8)
    assert "failed: got" in said, said
    check(8)
say("right")
""",
        3,
    )
    assert scripts.outputs() == ["right\n"] * 3


def test_tags_that_mark_such_messages_are_refused(scripts: Scripts) -> None:
    scripts.start(
        """
        os.environ["ANYACCEL_SHM_HOST"] = str(rank)
        start(20)
        last = 2**31 - 2**21 - 2
        x = torch.full((2,), float(rank))
        dist.send(x, 1, tag=last) if rank == 0 else dist.recv(x, 0, tag=last)
        say(x.tolist(), error_of(lambda: dist.send(x, 1 - rank, tag=last + 1)))
        """,
        2,
    )
    for output in scripts.outputs():
        assert "[0.0, 0.0] shm send failed: got tag 2145386495; expected one of 0 to 2^31 - 2^21 - 2" in output
