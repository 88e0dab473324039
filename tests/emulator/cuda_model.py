"""What CUDA says about a block's threads: who waits for whom, which accesses are ordered, and what each warp operation answers.

A thread is a Python generator that yields where it waits. `Block` runs these generators and keeps a vector clock per thread,
and so knows every race exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.emulator.random_operations import ATOMICS, WARP, WORD, bits_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Run = Callable[["Thread"], Iterator[tuple[object, ...]]]
    Place = tuple[str, int]
    Memory = dict[Place, int]
    Accesses = dict[Place, list[tuple[tuple[int, int], int, str]]]

VARIABLES = 3
SHARED = "sc"  # two arrays: `c` is changed by atomic operations, `s` is not


@dataclass
class Thread:
    """A thread, and what it knows of the others' time."""

    number: int
    block: Block
    variables: list[int]
    clock: list[int]
    loop: int = 0
    given: tuple[object, ...] | None = None
    answer: dict[int, int] = field(default_factory=dict)

    def add(self, variable: int, value: int) -> None:
        """Adds a result to a variable. They are not overwritten, so that the compiler cannot leave out what made them."""
        self.variables[variable] = self.variables[variable] + value & WORD

    @property
    def lane(self) -> int:
        return self.number % WARP

    @property
    def warp(self) -> int:
        return self.number // WARP


class Block:
    """One block of a launch: runs its threads as far as they can, and collects faults."""

    def __init__(self, size: int, index: int = 0, earlier: Block | None = None) -> None:
        self.size = size
        self.index = index
        self.faults: set[str] = set(earlier.faults) if earlier else set()
        self.memory: Memory = {}  # a byte each
        self.accesses: Accesses = {}
        if earlier:
            self.memory = {place: byte for place, byte in earlier.memory.items() if place[0] not in SHARED}
            self.accesses = {place: some for place, some in earlier.accesses.items() if place[0] not in SHARED}
        self.threads = [
            Thread(t, self, [t * 3 + 1] * VARIABLES, [int(t == u) for u in range(size)]) for t in range(size)
        ]

    def read(self, thread: Thread, space: str, at: int, size: int) -> int:
        self._access(thread, space, at, size, "read")
        return int.from_bytes((self.memory.get((space, byte), 0) for byte in range(at, at + size)), "little")

    def write(self, thread: Thread, space: str, at: int, size: int, value: int) -> None:
        self._access(thread, space, at, size, "write")
        for byte in range(size):
            self.memory[space, at + byte] = value >> 8 * byte & 255

    def change(self, thread: Thread, at: int, name: str, value: int) -> None:
        self._access(thread, "c", at, 4, "atomic")
        old = int.from_bytes((self.memory.get(("c", at + byte), 0) for byte in range(4)), "little")
        for byte, new in enumerate(ATOMICS[name](old, value).to_bytes(4, "little")):
            self.memory["c", at + byte] = new

    def _access(self, thread: Thread, space: str, at: int, size: int, kind: str) -> None:
        for byte in range(at, at + size):
            self._access_byte(thread, (space, byte), kind)

    def _access_byte(self, thread: Thread, place: tuple[str, int], kind: str) -> None:
        before = self.accesses.setdefault(place, [])
        for other, time, what in before:
            is_harmless = what == kind and kind in ("read", "atomic")
            is_of_other = other != (self.index, thread.number)
            if is_of_other and not is_harmless and (other[0] != self.index or thread.clock[other[1]] < time):
                self.faults.add("race")
        if kind != "write" and place[0] in SHARED and all(what == "read" for *_, what in before):
            self.faults.add("uninitialised shared memory")
        entry = ((self.index, thread.number), thread.clock[thread.number], kind)
        if entry not in before:
            before.append(entry)

    def run(self, body: Run) -> None:
        """Runs all threads, unless an earlier block never ended."""
        if "divergence" in self.faults:
            return
        running = {thread.number: body(thread) for thread in self.threads}
        ready = set(running)
        while running:
            for number in sorted(ready):
                thread = self.threads[number]
                thread.given = next(running[number], None)
                if thread.given is None:
                    del running[number]
            ready = self._released()
            if running and not ready:
                self.faults.add("divergence")
                return

    def _released(self) -> set[int]:
        waiting = [thread for thread in self.threads if thread.given is not None]
        sites = {thread.given[:2] for thread in waiting if thread.given is not None}
        if len(waiting) == self.size and len(sites) == 1 and next(iter(sites))[0] == "block":
            self._meet(waiting)
            values = {thread.number: bits_of(thread.given[2]) for thread in waiting if thread.given is not None}
            for thread in waiting:
                thread.answer = values
            return {thread.number for thread in waiting}
        released: set[int] = set()
        for thread in waiting:
            peers = self._peers(thread)
            if peers is None or thread.number in released:
                continue
            if thread.given is not None and thread.given[1] == "syncwarp":
                self._meet(peers)
            values = {peer.lane: bits_of(peer.given[3]) for peer in peers if peer.given is not None}
            for peer in peers:
                peer.answer = values
            released |= {peer.number for peer in peers}
        return released

    def _peers(self, thread: Thread) -> list[Thread] | None:
        """Returns the threads that meet this one, or None while some are not here."""
        assert thread.given is not None
        if thread.given[0] != "warp":
            return None
        mask = bits_of(thread.given[2])
        first = thread.warp * WARP
        peers = [self.threads[u] for u in range(first, min(first + WARP, self.size)) if mask >> (u - first) & 1]
        is_here = all(peer.given is not None and peer.given[:3] == thread.given[:3] for peer in peers)
        return peers if is_here and thread in peers else None

    def _meet(self, threads: list[Thread]) -> None:
        joined = [max(times) for times in zip(*(thread.clock for thread in threads), strict=True)]
        for thread in threads:
            thread.clock = list(joined)
            thread.clock[thread.number] += 1
