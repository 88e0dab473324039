"""Nothing is trusted: not data from the store, not arguments. What is invalid is rejected with a message that names it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .ranks import Scripts

FORGED = {
    "a long name": ("socket/0", "b'anyaccel-' + b'a' * 200 + b' ' + b'b' * 32", "a socket's name and a secret"),
    "no secret": ("socket/0", "b'anyaccel-' + b'a' * 32", "a socket's name and a secret"),
    "a short secret": ("socket/0", "b'anyaccel-' + b'a' * 32 + b' b'", "a socket's name and a secret"),
    "nothing": ("socket/0", "b''", "a socket's name and a secret"),
    "a long host": ("host/0", "host + b'h' * 100_000", "the name of a host"),
    "a host without a version": ("host/0", "b'elsewhere'", "the name of a host with this version of shm"),
    "another version's host": ("host/0", "b'shm 4 elsewhere'", "the name of a host with this version of shm"),
    "no rank": ("met/0", "b'9'", "the number of a rank"),
    "no number": ("met/0", "b'-1x'", "the number of a rank"),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_the_store_holds_is_checked(scripts: Scripts, name: str) -> None:
    """One rank of a group of two; a thread plays the other rank, and writes invalid data to the store."""
    key, value, expected = FORGED[name]
    scripts.start(
        f"""
        from anyaccel.distributed import shm
        kept = dist.HashStore()
        def forge():
            while not kept.check(["shm/host/1/1"]): time.sleep(0.01)
            host = kept.get("shm/host/1/1")
            values = {{"host/0": host, "socket/0": b"anyaccel-" + b"0" * 32 + b" " + b"1" * 32, "met/0": b"0"}}
            values[{key!r}] = {value}
            for name, content in values.items(): kept.set(f"shm/{{name}}/1", content)
        forger = threading.Thread(target=forge)
        forger.start()
        say(error_of(lambda: shm.create(kept, 1, 2, timedelta(seconds=10), [0, 1])))
        forger.join()
        """,
        1,
    )
    (output,) = scripts.outputs()
    assert f"shm/{key}" in output
    assert f"that are not {expected}" in output


REFUSED = {
    "broadcast": "lambda to: dist.broadcast(x, group_src=to)",
    "scatter": "lambda to: dist.scatter(x, None, group_src=to)",
    "reduce": "lambda to: dist.reduce(x, group_dst=to)",
    "gather": "lambda to: dist.gather(x, None, group_dst=to)",
    "recv": "lambda to: dist.recv(x, group_src=to)",
    "send": "lambda to: dist.send(x, group_dst=to)",
}
"""Operations with one special rank, which torch passes on as it is. ``-1`` is also what torch writes for no rank."""


@pytest.mark.parametrize("hosts", ["aaa", "aab"])
def test_a_rank_that_does_not_exist_is_named_and_nothing_is_written(scripts: Scripts, hosts: str) -> None:
    operations = ", ".join(f"{name!r}: {code}" for name, code in REFUSED.items())
    scripts.start(
        f"""
        start()
        x = torch.full((3,), float(rank))
        for name, call in {{{operations}}}.items():
            for to in (-1, -2, world, 2**31 - 1):
                text = error_of(lambda: call(to))
                if f"{{name}} failed: got rank {{to}}; expected one of 0 to 2" not in text: say(name, to, text)
        y = torch.ones(2)
        dist.all_reduce(y)
        say(x.unique().tolist() == [rank], y.tolist())
        """,
        3,
        hosts,
    )
    assert scripts.outputs() == ["True [3.0, 3.0]\n"] * 3


@pytest.mark.parametrize("hosts", ["aaaa", "aabb"])
def test_split_sizes_are_added_up_without_overflow(scripts: Scripts, hosts: str) -> None:
    """Each of these lists adds up to 4 in 64 bits."""
    scripts.start(
        """
        start()
        big, even = 2**62, [1, 1, 1, 1]
        for sizes in ([big, big, big, big + 4], [2**63 - 1, 2**63 - 1, 3, 3], [2**63 - 1, -(2**63) + 5, 0, 0], [5, -1, 0, 0]):
            for outputs, inputs in ((even, sizes), (sizes, even)):
                x, y = torch.zeros(4, dtype=torch.uint8), torch.ones(4, dtype=torch.uint8)
                text = error_of(lambda: dist.all_to_all_single(x, y, outputs, inputs))
                if "all_to_all failed: got split sizes" not in text: say(sizes, text)
        y = torch.ones(2)
        dist.all_reduce(y)
        say(y.tolist())
        """,
        4,
        hosts,
    )
    assert scripts.outputs() == ["[4.0, 4.0]\n"] * 4


@pytest.mark.parametrize("hosts", ["aa", "ab"])
def test_a_tensor_without_its_memory_is_refused(scripts: Scripts, hosts: str) -> None:
    """A storage that was freed, as FSDP does, or that is smaller than its tensor."""
    scripts.start(
        """
        start()
        def cut(bytes, view=lambda one: one):
            whole = torch.ones(40, 25)
            part = view(whole)
            whole.untyped_storage().resize_(bytes)
            return part
        right = torch.ones(1000)
        for x in (cut(0), cut(3999), cut(3999, lambda one: one[39:]), cut(3996, lambda one: one.t()[24:, 39:])):
            for call in (
                lambda: dist.all_reduce(x), lambda: dist.broadcast(x, 0), lambda: dist.send(x, 1 - rank),
                lambda: dist.recv(x, 1 - rank), lambda: dist.all_gather([x, x], x), lambda: dist.all_to_all([x, x], [x, x]),
            ):
                text = error_of(call)
                if "whose storage has" not in text: say(tuple(x.shape), text)
        empty = torch.ones(0)
        empty.untyped_storage().resize_(0)
        dist.all_reduce(empty)
        dist.all_reduce(cut(400, lambda one: one[:4]))
        dist.all_reduce(right)
        say(right.unique().tolist())
        """,
        2,
        hosts,
    )
    assert scripts.outputs() == ["[2.0]\n"] * 2


@pytest.mark.parametrize("size", [5, 300_000, 3_000_000])
@pytest.mark.parametrize(("hosts", "shift"), [("aa", 1), ("ab", 1), ("aabb", 1), ("aab", 2), ("aa", 0)])
def test_an_input_may_be_anywhere_in_the_output_of_a_gathering(
    scripts: Scripts, hosts: str, shift: int, size: int
) -> None:
    """In the place of another rank, and across places."""
    scripts.start(
        f"""
        start()
        whole = torch.empty(world * {size} + 3)
        place = (rank + {shift}) % world * {size}
        for output, begin in ((whole[3:], place), (whole[:-3], place)):
            for _ in range(3):
                own = whole[begin : begin + {size}]
                own.copy_(torch.arange({size}) + 1000 * rank)
                dist.all_gather_into_tensor(output, own)
                parts = output.view(world, -1)
                say(all(torch.equal(parts[r], torch.arange({size}) + 1000.0 * r) for r in range(world)))
        """,
        len(hosts),
        hosts,
    )
    assert scripts.outputs() == ["True\n" * 6] * len(hosts)


@pytest.mark.parametrize("hosts", ["aa", "ab"])
def test_a_tensor_that_is_twice_in_a_list_is_added_up_once(scripts: Scripts, hosts: str) -> None:
    scripts.start(
        """
        start()
        x, y = torch.full((3,), rank + 1.0), torch.full((2, 3), rank + 1.0)
        dist.all_reduce_coalesced([x, y.t(), x, y.t(), torch.empty(0)])
        say(x.tolist(), y.unique().tolist())
        """,
        2,
        hosts,
    )
    assert scripts.outputs() == ["[3.0, 3.0, 3.0] [3.0]\n"] * 2


@pytest.mark.parametrize("hosts", ["aa", "ab"])
def test_sparse_sums_of_every_dtype_are_right_or_refused(scripts: Scripts, hosts: str) -> None:
    scripts.start(
        """
        start()
        refused, wrong = [], []
        kinds = "float64 float32 float16 bfloat16 float8_e4m3fn int64 int32 int16 int8 uint8 uint16 bool"
        for name in kinds.split():
            dtype = getattr(torch, name)
            index = torch.tensor([[0, rank + 1]])
            x = torch.sparse_coo_tensor(index, torch.ones(2).to(dtype), (4,))
            text = error_of(lambda: dist.all_reduce(x))
            y = torch.ones(2)
            dist.all_reduce(y)
            if text != "no error":
                refused.append(name if "Fix: convert it" in text and x._nnz() == 2 else text)
            elif x.to_dense().double().tolist() != [2, 1, 1, 0] or x.dtype != dtype:
                wrong.append(name)
            if y.tolist() != [2, 2]:
                wrong.append(f"after {name}")
        say(wrong, *refused)
        x = torch.sparse_coo_tensor([[0]], torch.tensor([1.0 if rank else 2048.0]).half(), (2,))
        dist.all_reduce(x)
        say(x.to_dense().tolist())
        """,
        2,
        hosts,
    )
    assert scripts.outputs() == ["[] float8_e4m3fn uint16 bool\n[2048.0, 0.0]\n"] * 2
