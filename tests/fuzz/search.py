"""The search for one target: successful specs lead to the next calls.

An op's error message shows how far a spec got through its checks. A spec that gives a new message joins the corpus,
and most new specs are changes of those, or changes that the message asks for: so the search proceeds from check to check,
up to calls that are accepted.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .drawing import Drawing
from .oracle import Finding, Outcome, judge
from .repairs import repaired
from .specs import Spec, mutated, new_spec

if TYPE_CHECKING:
    from .arenas import Arena
    from .targets import Target

__all__ = ["Search", "run_case"]

_KEPT_A_MESSAGE = 4
_KEPT_ACCEPTED = 150
_NEWEST = 5
_FEW = 20
_MOST_REPAIRS = 30
_MOST_FINDINGS = 5


def run_case(target: Target, spec: Spec, seed: int, pool: list[Arena]) -> tuple[Outcome, Drawing]:
    """Make one call.

    Raises:
        Finding: when it ends in neither of the two allowed ways.
    """
    drawing = Drawing(pool)
    try:
        drawing.draw(spec, target.arguments, seed)
        rng = random.Random(seed + 1)  # noqa: S311
        gradients = not target.is_raw and rng.random() < 0.4
        reference = gradients or rng.random() < 0.3
        return judge(target, drawing, with_gradients=gradients, with_reference=reference), drawing
    finally:
        for arena in drawing.arenas():
            arena.reset()


@dataclass
class _Known:
    """A spec that was accepted, and how often: some are accepted only when two sizes happen to be equal."""

    spec: Spec
    accepted: int = 1
    calls: int = 1


@dataclass
class Search:
    """Fuzzes one target.

    Attributes:
        write_down: called with each case before the call, as one line of JSON.
    """

    target: Target
    seed: int
    pool: list[Arena]
    write_down: Any
    calls: int = 0
    accepted: int = 0
    findings: list[dict[str, Any]] = field(default_factory=list)
    messages: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)  # noqa: S311
        self._refused: dict[str, list[Spec]] = defaultdict(list)
        self._accepted: list[_Known] = []
        self._kinds: set[str] = set()
        self._repairs: list[Spec] = []

    def run(self, calls: int) -> None:
        """Make a number of further calls, or fewer once there are enough findings."""
        for _ in range(calls):
            if len(self.findings) >= _MOST_FINDINGS:
                return
            self._one()

    def _one(self) -> None:
        spec, known = self._next()
        seed = self._rng.getrandbits(32)
        case = json.dumps({"target": self.target.name, "seed": seed, "spec": spec})
        self.write_down(case)
        self.calls += 1
        try:
            outcome, drawing = run_case(self.target, spec, seed, self.pool)
        except Finding as finding:
            self.findings.append({"what": str(finding)[:600], "case": json.loads(case)})
            return
        self.messages[outcome.message] += 1
        if known is not None:
            known.calls += 1
            known.accepted += outcome.is_accepted
        if not outcome.is_accepted:
            kept = self._refused[outcome.message]
            if len(kept) < _KEPT_A_MESSAGE:
                kept.append(spec)
            told = repaired(spec, self.target.arguments, outcome.text, drawing.dims, self._rng)
            if told is not None and len(self._repairs) < _MOST_REPAIRS:
                self._repairs.append(told)
            return
        self.accepted += 1
        if known is not None:
            return
        kind = repr([(laid.argument.name, laid.tensor.dtype, laid.tensor.dim()) for laid in drawing.laid])
        if kind not in self._kinds or len(self._accepted) < 10:
            self._kinds.add(kind)
            if len(self._accepted) < _KEPT_ACCEPTED:
                self._accepted.append(_Known(spec))
            else:
                self._accepted[self._rng.randrange(_KEPT_ACCEPTED)] = _Known(spec)

    def _next(self) -> tuple[Spec, _Known | None]:
        """Return a spec, and its origin if it repeats an accepted one."""
        rng, arguments = self._rng, self.target.arguments
        chance = rng.random()
        if self._repairs and rng.random() < (0.6 if len(self._accepted) < _FEW else 0.1):
            return self._repairs.pop(), None
        if self._accepted and chance < 0.85:
            # the more reliable of two, so that rarely accepted specs are rarely used
            known = max(rng.choices(self._accepted, k=2), key=lambda one: one.accepted / one.calls)
            return (known.spec, known) if chance < 0.55 else (mutated(known.spec, arguments, rng), None)
        if self._refused and chance < 0.97:
            messages = list(self._refused)
            message = rng.choice(messages[-_NEWEST:] if rng.random() < 0.6 else messages)  # the newest are the furthest
            return mutated(rng.choice(self._refused[message]), arguments, rng, message), None
        return new_spec(arguments, rng), None
