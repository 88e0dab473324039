"""The states of all devices' random number generators, which a target may have one by one only."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import libcst as cst

from .exact import fixed
from .guarded_places import is_guarded
from .source_view import dotted
from .targets import expression, parsed

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["decide_all_states", "decide_restoring_states", "keep_from_cpu"]

_RESTORING = ("set_rng_state", "set_rng_state_all")
_SAME_EACH_TIME = re.compile(r"(^|\.)(int|float|str|len|abs|hash|min|max|round|item|getenv|get(?!.*next)\w*|\w*rank)$")
_SEEDING = ("manual_seed", "manual_seed_all")
_OF_STATE = "does nothing without CUDA, and would change a CPU's generator; decide which devices do it"


def decide_all_states(plan: Plan, call: cst.Call, rule: str) -> None:
    """Decide on ``torch.cuda.get_rng_state_all()``."""
    function, name = plan.function("get_rng_state_all"), plan.device_name()
    if function is not None and name is not None and is_guarded(plan, call):
        plan.call_in_place(call.func, rule, "get_rng_state_all")
        return
    if function is not None and name is not None:  # without CUDA there were no states
        new = expression(f'{function}() if {{name}} != "cpu" else []', name=name)
        plan.rewrite(call, rule, fixed(plan, call, new), (call.func,))
        return
    state, count = plan.function("get_rng_state"), plan.function("device_count")
    if state is None or count is None:
        plan.report(call.func, rule, plan.without("get_rng_state"))
        return
    plan.rewrite(call, rule, lambda _: parsed(f"[{state}(i) for i in range({count}())]"), (call.func,))


def decide_restoring_states(plan: Plan, call: cst.Call, rule: str) -> None:
    """Decide on ``torch.cuda.set_rng_state_all(states)``."""
    if plan.function("set_rng_state_all") is not None:
        plan.call_in_place(call.func, rule, "set_rng_state_all")
        return
    function = plan.function("set_rng_state")
    if function is None:
        plan.report(call.func, rule, plan.without("set_rng_state"))
        return
    line = _line_of(plan, call)
    if line is not None:
        names = [_free(plan, each) for each in ("i", "state")]
        plan.rewrite(line, rule, lambda updated: _restoring(updated, function, *names), (call.func,))
        return
    template = f"[{function}(state, i) for i, state in enumerate({{states}})]"
    plan.rewrite(call, rule, lambda updated: expression(template, states=updated.args[0].value), (call.func,))


def keep_from_cpu(plan: Plan, call: cst.Call, member: str) -> None:
    """Put a rewritten call that did nothing without CUDA under ``if device_name() != "cpu"``, if a CPU's generator would change.

    A state of CUDA's generator does not fit a CPU's. A module that also calls ``get_rng_state()``, which raises without CUDA,
    keeps the state of the device on which it runs, unless it asks for CUDA first. A seed changes nothing where the function
    also gives it to torch.
    """
    if member not in _RESTORING and not (member in _SEEDING and _is_other_seed(plan, call)):
        return
    line, name = _line_of(plan, call), plan.device_name()
    one = next((plan.decisions[each] for each in (line, call, call.func) if each in plan.decisions), None)
    is_kept = member in _RESTORING and _reads_state(plan)
    if is_kept or is_guarded(plan, call) or name is None or not plan.target.package or one is None or one.build is None:
        return
    if line is None or (member in _SEEDING and _draws(plan, call)):
        plan.reconsider(one.node, _OF_STATE)
        return
    build = one.build

    def guarded(updated: Any) -> cst.CSTNode:
        is_line = one.node is line
        inner: Any = (
            build(updated) if is_line else updated.with_changes(body=[cst.Expr(one.called(updated.body[0].value))])
        )
        test = expression('{name} != "cpu"', name=name)
        return cst.If(
            test, cst.IndentedBlock([inner.with_changes(leading_lines=())]), leading_lines=updated.leading_lines
        )

    plan.move(one, line, guarded)


def _reads_state(plan: Plan) -> bool:
    """Return whether the module calls ``torch.cuda.get_rng_state()`` where nothing has found CUDA."""
    reads = [node for node, name in plan.view.imported.items() if name == "torch.cuda.get_rng_state"]
    return any(not is_guarded(plan, each) for each in reads)


def _is_other_seed(plan: Plan, call: cst.Call) -> bool:
    """Return whether a function seeds CUDA with another value than torch, or CUDA alone."""
    owner = next((each for each in plan.view.ancestors(call) if isinstance(each, cst.FunctionDef)), plan.view.module)
    seeds = [each for each in plan.view.inside(owner, cst.Call) if plan.view.name(each.func) == "torch.manual_seed"]
    given = [[plan.view.code(argument.value) for argument in each.args] for each in (*seeds, call)]
    return given[-1] not in given[:-1] or _draws(plan, call)


def _draws(plan: Plan, call: cst.Call) -> bool:
    """Return whether an argument calls a function that may return something else the next time."""
    calls = [each for each in plan.view.inside(call, cst.Call) if each is not call]
    return any(not _SAME_EACH_TIME.search(dotted(each.func) or "") for each in calls)


def _line_of(plan: Plan, call: cst.Call) -> cst.CSTNode | None:
    """Return the line that consists of a call alone; None if its value is used or the line has other statements."""
    statement = plan.view.parent(call)
    line = plan.view.parent(statement) if isinstance(statement, cst.Expr) else None
    is_alone = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
    return line if is_alone and isinstance(plan.view.parent(line or call), cst.IndentedBlock | cst.Module) else None


def _free(plan: Plan, name: str) -> str:
    """Return a name that the module does not bind."""
    while name in plan.view.bound_names:
        name = f"{name}_"
    return name


def _restoring(line: cst.SimpleStatementLine, function: str, index: str, state: str) -> cst.CSTNode:
    """Return a loop that restores every device's state and replaces the line of the call."""
    statement = line.body[0]
    assert isinstance(statement, cst.Expr)  # noqa: S101  # guaranteed by _line_of
    assert isinstance(statement.value, cst.Call)  # noqa: S101  # as above
    states = expression("enumerate({states})", states=statement.value.args[0].value)
    inner = cst.SimpleStatementLine([cst.Expr(parsed(f"{function}({state}, {index})"))])
    loop = cst.For(
        cst.Tuple([cst.Element(cst.Name(index)), cst.Element(cst.Name(state))], lpar=(), rpar=()),
        states,
        cst.IndentedBlock([inner.with_changes(trailing_whitespace=line.trailing_whitespace)]),
    )
    return loop.with_changes(leading_lines=line.leading_lines)
