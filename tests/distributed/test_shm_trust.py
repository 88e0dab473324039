"""Data from the store or from shared memory is not trusted: invalid data is rejected with a message that names it."""

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
    "a long host": ("host/0", "b'h' * 100_000", "the name of a host"),
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
