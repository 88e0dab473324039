"""Random CUDA kernels with branches, loops, barriers, shuffles, votes, atomics, shared and global memory.

Each statement is a pair: its source, and a generator function that does the same for one thread of the model. Which addresses a
kernel uses never depends on values that a race could change, so that all orders of its threads have the same faults.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tests.emulator.cuda_model import VARIABLES, Block
from tests.emulator.random_operations import (
    ATOMICS,
    REDUCTIONS,
    SHUFFLES,
    TYPES,
    VOTES,
    WARP,
    WORD,
    shuffle_source,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from tests.emulator.cuda_model import Run, Thread

    Term = tuple[str, Callable[[Thread], int]]
    Statement = tuple[str, Run]

CELLS = 32
UNSIGNED = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "unsigned long long"}


class Generator:
    """Draws statements. `mistakes` is the share of masks, indices and barriers that are probably wrong."""

    def __init__(self, rng: random.Random, size: int, mistakes: float) -> None:
        self.rng = rng
        self.size = size
        self.mistakes = mistakes
        self.sites = 0
        self.atomic = rng.choice(sorted(ATOMICS))

    def kernel(self) -> Statement:
        """Returns a whole kernel: it fills shared memory, runs ten statements, and writes its variables."""
        everyone = self._masks_of(lambda _: True)
        start: list[Statement] = [self._fill("s"), self._fill("c")] if self.rng.random() < 0.95 else []
        middle = [self._statement(everyone, 0) for _ in range(self.rng.randint(3, 10))]
        return _in_order([*start, self._block_barrier(), *middle, *(self._store(i) for i in range(VARIABLES))])

    def _is_mistake(self) -> bool:
        return self.rng.random() < self.mistakes

    def _masks_of(self, has: Callable[[int], bool]) -> list[int]:
        return [sum(1 << lane for lane in range(WARP) if has(first + lane)) for first in range(0, self.size, WARP)]

    def _site(self) -> int:
        self.sites += 1
        return self.sites

    def _fill(self, space: str) -> Statement:
        def run(thread: Thread) -> Iterator[tuple[object, ...]]:
            for index in range(thread.number, CELLS, self.size):
                thread.block.write(thread, space, index * 4, 4, index * 5)
            yield from ()

        return f"for (int i = t; i < {CELLS}; i += {self.size}) {space}[i] = i * 5;", run

    def _store(self, variable: int) -> Statement:
        def run(thread: Thread) -> Iterator[tuple[object, ...]]:
            index = (thread.block.index * thread.block.size + thread.number) * VARIABLES + variable
            thread.block.write(thread, "y", index * 4, 4, thread.variables[variable])
            yield from ()

        return f"y[(blockIdx.x * blockDim.x + t) * {VARIABLES} + {variable}] = v{variable};", run

    def _value(self) -> Term:
        one, other, k = self.rng.randrange(VARIABLES), self.rng.randrange(VARIABLES), self.rng.randrange(1, 1 << 20)
        return self.rng.choice([
            (f"v{one} + {k}u", lambda t: t.variables[one] + k & WORD),
            (f"(v{one} ^ v{other} * {k}u)", lambda t: t.variables[one] ^ t.variables[other] * k & WORD),
            (f"(v{one} >> 3) + t", lambda t: (t.variables[one] >> 3) + t.number & WORD),
        ])  # fmt: skip

    def _index(self) -> Term:
        k = self.rng.randrange(1, CELLS)
        if self.rng.random() < 0.75:
            return f"t % {CELLS}", lambda t: t.number % CELLS
        return self.rng.choice([
            (f"(t ^ {k}) % {CELLS}", lambda t: (t.number ^ k) % CELLS),
            (f"(t + {k} + loop) % {CELLS}", lambda t: (t.number + k + t.loop) % CELLS),
            (f"{k}", lambda _: k),
            (f"t / {k}", lambda t: t.number // k % CELLS),
        ]) if self.size <= CELLS else (f"t % {k}", lambda t: t.number % k)  # fmt: skip

    def _size(self) -> int:
        return self.rng.choice([1, 2, 4, 4, 4, 4, 8])

    def _place(self) -> tuple[Callable[[str, int], str], Callable[[Thread, str, int], int]]:
        """Returns the source and the byte of an element of this size; blocks have parts of `g` of their own, most of the time."""
        (index, at), part, is_own = self._index(), self.rng.randrange(4), not self._is_mistake()

        def place(space: str, size: int) -> str:
            within = f"({index}) * 4 / {size}" + (f" + {part * size % 4 // size}" if size < 4 else "")
            own = f" + blockIdx.x * {CELLS * 4 // size}" if space == "g" and is_own else ""
            return f"reinterpret_cast<{UNSIGNED[size]}*>({space})[{within}{own}]"

        def byte(thread: Thread, space: str, size: int) -> int:
            first = at(thread) * 4 // size * size + (part * size % 4 if size < 4 else 0)
            return first + (thread.block.index * CELLS * 4 if space == "g" and is_own else 0)

        return place, byte

    def _condition(self) -> Term:
        k = self.rng.randrange(1, 32)
        return self.rng.choice([
            (f"t < {k}", lambda t: int(t.number < k)),
            (f"(t & {k}) != 0", lambda t: int(t.number & k != 0)),
            (f"t == {k}", lambda t: int(t.number == k)),
            (f"t % 32 / 8 == {k % 4}", lambda t: int(t.number % 32 // 8 == k % 4)),
            (f"(t == {k} + loop || t == {k} + loop + 1)", lambda t: int(t.number - k - t.loop in (0, 1))),
        ])  # fmt: skip

    def _statement(self, masks: list[int], depth: int) -> Statement:
        choices = [(self._write, 3), (self._read, 3), (self._atomic, 1), (lambda: self._warp_value(masks), 4)]
        choices += [(lambda: self._sync_warp(masks), 4), (lambda: self._pairs(masks), 1)]
        if depth == 0 or self._is_mistake():
            choices += [(self._block_barrier, 1)]
        if depth < 3:
            choices += [(lambda: self._if(masks, depth), 3), (lambda: self._for(masks, depth), 1)]
        draw = self.rng.choices([choice for choice, _ in choices], [weight for _, weight in choices])[0]
        return draw()

    def _write(self) -> Statement:
        (place, at), (value, what), space, size = self._place(), self._value(), self.rng.choice("sg"), self._size()

        def run(thread: Thread) -> Iterator[tuple[object, ...]]:
            thread.block.write(thread, space, at(thread, space, size), size, what(thread))
            yield from ()

        return f"{place(space, size)} = {value};", run

    def _read(self) -> Statement:
        (place, at), variable = self._place(), self.rng.randrange(VARIABLES)
        space, size = self.rng.choice("sgc"), self._size()

        def run(thread: Thread) -> Iterator[tuple[object, ...]]:
            thread.add(variable, thread.block.read(thread, space, at(thread, space, size), size))
            yield from ()

        return f"v{variable} += {place(space, size)};", run

    def _atomic(self) -> Statement:
        (index, at), (value, what) = self._index(), self._value()

        def run(thread: Thread) -> Iterator[tuple[object, ...]]:
            thread.block.change(thread, at(thread) * 4, self.atomic, what(thread))
            yield from ()

        return f"{self.atomic}(&c[{index}], {value});", run

    def _mask(self, masks: list[int]) -> Term:
        own = list(masks)
        if self._is_mistake():
            own = [mask ^ 1 << self.rng.randrange(WARP) for mask in own]
        two = own if len(own) == 2 else own * 2
        text = f"0x{own[0]:x}u" if len(set(own)) == 1 else f"(t < 32 ? 0x{two[0]:x}u : 0x{two[1]:x}u)"
        return text, lambda t: own[t.warp]

    def _sync_warp(self, masks: list[int]) -> Statement:
        text, mask = self._mask(masks)

        def run(thread: Thread) -> Iterator[tuple[object, ...]]:
            yield "warp", "syncwarp", mask(thread), 0

        return f"__syncwarp({text});", run

    def _pairs(self, masks: list[int]) -> Statement:
        """Pairs of neighbours, one after the other: each lane but the first and the last is in two masks."""
        lanes = [lane for lane in range(WARP) if all(mask >> lane & 1 for mask in masks)][: self.rng.randint(2, 5)]
        steps = [(1 << a | 1 << b) for a, b in pairwise(lanes)]
        if self.rng.random() < 0.5:
            self.rng.shuffle(steps)

        def run(thread: Thread) -> Iterator[tuple[object, ...]]:
            for step in steps:
                if step >> thread.lane & 1:
                    yield "warp", "syncwarp", step, 0

        if self.rng.random() < 0.5 or not steps:
            return "".join(f"if (0x{step:x}u >> t % 32 & 1) __syncwarp(0x{step:x}u); " for step in steps) or ";", run
        table = ", ".join(f"0x{step:x}u" for step in steps)
        return f"for (unsigned m : {{{table}}}) {{ if (m >> t % 32 & 1) __syncwarp(m); }}", run

    def _block_barrier(self) -> Statement:
        site, (value, what), variable = self._site(), self._value(), self.rng.randrange(VARIABLES)
        kind = self.rng.choice(["", "", "_count", "_or", "_and"])

        def run(thread: Thread) -> Iterator[tuple[object, ...]]:
            yield "block", site, what(thread) >> 2 & 1
            true = sum(thread.answer.values())
            results = {"_count": true, "_or": int(true > 0), "_and": int(true == thread.block.size)}
            thread.add(variable, results.get(kind, 0))

        return (f"v{variable} += __syncthreads{kind}(({value}) & 4u);" if kind else "__syncthreads();"), run

    def _warp_value(self, masks: list[int]) -> Statement:
        draw = self.rng.choice([self._shuffle, self._shuffle, self._vote, self._reduction])
        return draw(masks)

    def _shuffle(self, masks: list[int]) -> Statement:
        site, (mask_text, mask), (value, what) = self._site(), self._mask(masks), self._value()
        variable, name = self.rng.randrange(VARIABLES), self.rng.choice(SHUFFLES)
        width, distance = self.rng.choice([32, 32, 16, 8, 4, 2, 1]), self.rng.choice([0, 1, 2, 3, 8, 16, 31])
        cxx, back, reduced = self.rng.choice(TYPES)

        def run(thread: Thread) -> Iterator[tuple[object, ...]]:
            source = shuffle_source(name, thread.lane, distance, width)
            if not mask(thread) >> source & 1 or thread.warp * WARP + source >= thread.block.size:
                thread.block.faults.add("divergence")
                source = thread.lane
            yield "warp", site, mask(thread), reduced(what(thread))
            thread.add(variable, thread.answer[source])

        tail = "" if width == WARP and self.rng.random() < 0.5 else f", {width}"
        return f"v{variable} += {back}({name}({mask_text}, {cxx % value}, {distance}{tail}));", run

    def _vote(self, masks: list[int]) -> Statement:
        site, (mask_text, mask), (value, what) = self._site(), self._mask(masks), self._value()
        variable, (name, vote) = self.rng.randrange(VARIABLES), self.rng.choice(sorted(VOTES.items()))

        def run(thread: Thread) -> Iterator[tuple[object, ...]]:
            own = what(thread) & 6
            yield "warp", site, mask(thread), own
            thread.add(variable, vote(thread.answer, own))

        return f"v{variable} += (unsigned){name}({mask_text}, ({value}) & 6u);", run

    def _reduction(self, masks: list[int]) -> Statement:
        site, (mask_text, mask), (value, what) = self._site(), self._mask(masks), self._value()
        variable, name = self.rng.randrange(VARIABLES), self.rng.choice(sorted(REDUCTIONS))
        is_signed = self.rng.random() < 0.5 and name not in (
            "__reduce_and_sync",
            "__reduce_or_sync",
            "__reduce_xor_sync",
        )

        def run(thread: Thread) -> Iterator[tuple[object, ...]]:
            yield "warp", site, mask(thread), what(thread)
            values = [v - (1 << 32) if is_signed and v >> 31 else v for v in thread.answer.values()]
            thread.add(variable, REDUCTIONS[name](values))

        return f"v{variable} += (unsigned){name}({mask_text}, ({'int' if is_signed else 'unsigned'})({value}));", run

    def _if(self, masks: list[int], depth: int) -> Statement:
        condition, is_true = self._condition()
        threads = Block(self.size).threads
        inside = self._masks_of(lambda t: t < self.size and bool(is_true(threads[t])))
        yes = [mask & has for mask, has in zip(masks, inside, strict=True)]
        no = [mask & ~has for mask, has in zip(masks, inside, strict=True)]
        then = _in_order([self._statement(yes, depth + 1) for _ in range(self.rng.randint(1, 3))])
        other = _in_order([self._statement(no, depth + 1) for _ in range(self.rng.randint(0, 2))])

        def run(thread: Thread) -> Iterator[tuple[object, ...]]:
            yield from (then if is_true(thread) else other)[1](thread)

        return f"if ({condition}) {{ {then[0]} }} else {{ {other[0]} }}", run

    def _for(self, masks: list[int], depth: int) -> Statement:
        count = self.rng.randint(2, 4)
        body = _in_order([self._statement(masks, depth + 2) for _ in range(self.rng.randint(1, 3))])

        def run(thread: Thread) -> Iterator[tuple[object, ...]]:
            outer = thread.loop
            for step in range(count):
                thread.loop = outer + step
                yield from body[1](thread)
            thread.loop = outer

        name = f"i{self._site()}"
        return (
            f"for (int {name} = 0, outer = loop; {name} < {count}; ++{name}) {{ int loop = outer + {name}; {body[0]} }}",
            run,
        )


def _in_order(statements: list[Statement]) -> Statement:
    def run(thread: Thread) -> Iterator[tuple[object, ...]]:
        for _, one in statements:
            yield from one(thread)

    return "\n    ".join(text for text, _ in statements), run


def source_of(kernels: list[str]) -> str:
    """Returns one kernel whose last parameter chooses among these, as compiling is slow."""
    cases = "\n".join(f"  case {number}: {{\n    {text}\n  }} break;" for number, text in enumerate(kernels))
    variables = " ".join(f"unsigned v{i} = t * 3 + 1;" for i in range(VARIABLES))
    return f"""
__global__ void k(unsigned* y, unsigned* g, int which) {{
  __shared__ unsigned s[{CELLS}], c[{CELLS}];
  const int t = threadIdx.x, loop = 0;
  {variables}
  switch (which) {{
{cases}
  }}
}}
"""
