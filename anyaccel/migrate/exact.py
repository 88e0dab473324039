"""Questions about CUDA that are rewritten so that a CPU answers no, as a machine without CUDA did before.

``torch.cuda.is_available()`` becomes ``get_accelerator().device_name() != "cpu"`` where a CPU must not take the branch that
was CUDA's. ``device.type == "cuda"`` becomes ``device.type == get_accelerator().device_name() != "cpu"``, and
``torch.cuda.device_count()`` becomes 0 on a CPU.

Proof: on CUDA, ``device_name()`` is "cuda", so the added condition is true, and the rest has the old value. On a CPU it is
"cpu", so the new question is false, and the new number is 0. So were the old ones without CUDA, where no tensor is on CUDA.
Only the name of a device that a user asked for may be "cuda" there; the program then needs CUDA, or falls back to the CPU,
and :mod:`.settled_questions` leaves the tests that do so. Whatever depends on the answer therefore does what it did before on
both. Another accelerator takes the branch that was CUDA's: :mod:`.dependents` objects if anything in it stays specific to
CUDA or to another library.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import libcst as cst

from .choices import asks_availability
from .cuda_guards import writes_kernels
from .guarded_places import HOLDS, is_guarded
from .other_libraries import is_of_other_library
from .site import SiteOutcome
from .source_view import dotted, text_of
from .targets import expression

if TYPE_CHECKING:
    from collections.abc import Callable

    from .plan import Build, Plan, SiteDecision

__all__ = [
    "also_other_than_cpu",
    "compared_exactly",
    "fixed",
    "only_on_accelerator",
    "rewrite_count",
    "state_exactly",
]

_TIGHT = (cst.UnaryOperation, cst.BinaryOperation, cst.Comparison, cst.ComparisonTarget, cst.Attribute, cst.Await)
_NVIDIAS = re.compile(r"nvidia[-_]smi|nvml|gputil|gpustat|nvitop", re.IGNORECASE)
_TRUE_ON_CPU = {
    "is_bf16_supported": "is_bf16_supported",
    "is_initialized": "is_initialized",
    "_initialized": "is_initialized",
}
_OF_COUNT = "counts CUDA devices in code for CUDA or for another library; decide which number other devices take"


def state_exactly(plan: Plan, question: SiteDecision, asked: cst.CSTNode) -> bool:
    """Change the rewrite of a question to one that a CPU answers with no; return False if there is no such rewrite.

    Args:
        plan: the module's plan.
        question: the decision on the question, which is rewritten.
        asked: the expression whose value is the answer.
    """
    if question.node in plan.exact or _is_for_cuda(plan, question.node):
        return False
    if is_guarded(plan, asked):  # a CPU does not come here
        plan.exact[question.node] = asked
        return True
    found = _restated(plan, question, asked)
    if found is None:
        return False
    node, build = found
    plan.move(question, node, build)
    plan.exact[node] = asked
    return True


def _asks_nvidia(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether the class or function around a place asks NVIDIA's tools about its devices."""
    owner = next((each for each in plan.view.ancestors(node) if isinstance(each, cst.ClassDef | cst.FunctionDef)), None)
    outer = plan.view.class_around(node) or owner
    return outer is not None and _NVIDIAS.search(plan.view.code(outer)) is not None


def _is_for_cuda(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether code is in a module with kernels of CUDA's, or in a function for a library with devices of its own.

    Another accelerator must not take CUDA's branch there.
    """
    return writes_kernels(plan.view) or is_of_other_library(plan.view, node)


def _restated(plan: Plan, question: SiteDecision, asked: cst.CSTNode) -> tuple[cst.CSTNode, Build] | None:
    node, build = question.node, question.build
    if not plan.target.package and question.rule == "runtime-call":
        return (node, build) if build is not None else None  # torch.accelerator's answers are already those
    name = plan.device_name()
    if name is None or build is None:
        return None
    if question.rule == "is-cuda":
        return node, also_other_than_cpu(plan, node, build)
    if question.rule == "comm-backend" and isinstance(asked, cst.Comparison):
        return _of_backend(plan, asked, build)
    if question.rule == "device-name" and node in plan.questions:
        return node, compared_exactly(plan, node, name, build)
    if question.rule != "runtime-call":
        return None
    if plan.view.name(node) == "torch.cuda.device_count" and isinstance(asked, cst.Call):
        return _of_count(plan, asked)
    member = (plan.view.name(node) or "").removeprefix("torch.cuda.")
    if member in _TRUE_ON_CPU and isinstance(asked, cst.Call | cst.Attribute):
        function = plan.function(_TRUE_ON_CPU[member])
        return asked, also_other_than_cpu(plan, asked, lambda _: expression(f"{function}()"))
    if isinstance(asked, cst.BooleanOperation) or asks_availability(plan.view, asked) is True:  # type: ignore[arg-type]
        return _whether_other(plan, asked, name)
    return None


def _of_backend(plan: Plan, asked: cst.Comparison, backend: Build) -> tuple[cst.CSTNode, Build] | None:
    """Return the rewrite of ``get_backend() == "nccl"``, which no group on a CPU had; None for another comparison."""
    target = asked.comparisons[0]
    if not isinstance(target.operator, cst.Equal) or text_of(target.comparator) != "nccl":
        return None

    def build(updated: cst.Comparison) -> cst.BaseExpression:
        return updated.with_changes(comparisons=[target.with_changes(comparator=backend(target.comparator))])

    return asked, also_other_than_cpu(plan, asked, build)


def _whether_other(
    plan: Plan, asked: cst.CSTNode, name: cst.BaseExpression, *, is_negated: bool = False
) -> tuple[cst.CSTNode, Build]:
    """Return the rewrite of a question for any accelerator: ``device_name() != "cpu"``, or ``==`` for its negation."""
    around = plan.view.parent(asked)
    is_not = isinstance(around, cst.UnaryOperation) and isinstance(around.operator, cst.Not)
    node = around if is_not and around is not None else asked
    code = "{name} == {cpu}" if is_not != is_negated else "{name} != {cpu}"
    return node, fixed(plan, node, expression(code, name=name, cpu=_cpu(plan, node)))


def _cpu(plan: Plan, node: cst.CSTNode) -> cst.SimpleString:
    """Return the CPU's name as a string; in an f-string, with the quotes that do not end it."""
    inside = [each.start for each in plan.view.ancestors(node) if isinstance(each, cst.FormattedString)]
    return cst.SimpleString("'cpu'" if any('"' in start for start in inside) else '"cpu"')


def fixed(plan: Plan, node: cst.CSTNode, new: cst.BaseExpression) -> Build:
    """Return a builder of new code for a node, in parentheses where its place needs them."""
    return lambda _: _fitted(plan, node, new)


def _fitted(plan: Plan, node: cst.CSTNode, new: Any) -> cst.BaseExpression:
    around = plan.view.parent(node)
    is_weak = isinstance(new, cst.BooleanOperation | cst.IfExp)
    is_or = is_weak and not (isinstance(new, cst.BooleanOperation) and isinstance(new.operator, cst.And))
    is_atom = not is_weak and not isinstance(new, cst.Comparison)
    needs = isinstance(around, _TIGHT) or (is_or and isinstance(around, cst.BooleanOperation | cst.IfExp))
    is_operand = isinstance(around, cst.UnaryOperation) and isinstance(around.operator, cst.Not) and not is_weak
    if not needs or is_operand or is_atom or new.lpar:
        return new  # type: ignore[no-any-return]  # an expression
    return new.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])  # type: ignore[no-any-return]


def also_other_than_cpu(plan: Plan, node: cst.CSTNode, build: Build) -> Build:
    """Return a builder of ``… and device_name() != "cpu"`` after what another builder makes."""
    name = plan.device_name()
    assert name is not None  # noqa: S101  # checked by the callers
    return lambda updated: _fitted(
        plan,
        node,
        expression("{rest} and {name} != {cpu}", name=name, cpu=_cpu(plan, node), rest=_operand(build(updated))),
    )


def _operand(node: Any) -> Any:
    return node.with_changes(lpar=[], rpar=[]) if not isinstance(node, cst.BooleanOperation) else node


def compared_exactly(plan: Plan, node: cst.CSTNode, name: cst.BaseExpression, build: Build) -> Build:
    """Return a builder of a comparison with the accelerator's name, which another makes, that is false on a CPU."""
    if not isinstance(node, cst.Comparison) or len(node.comparisons) != 1:
        return also_other_than_cpu(plan, node, build)
    target = node.comparisons[0]
    if _is_accelerator_or_cpu(plan, node) and isinstance(target.operator, cst.Equal | cst.NotEqual):
        flipped = cst.NotEqual() if isinstance(target.operator, cst.Equal) else cst.Equal()
        cpu = target.with_changes(operator=flipped, comparator=_cpu(plan, node))
        return lambda updated: updated.with_changes(comparisons=[cpu])
    if isinstance(target.operator, cst.In | cst.NotIn) and _has_others(target.comparator):
        code = "{rest} and {left} != {cpu}" if isinstance(target.operator, cst.In) else "{rest} or {left} == {cpu}"
        return lambda updated: _fitted(
            plan, node, expression(code, left=node.left, cpu=_cpu(plan, node), rest=_operand(build(updated)))
        )
    if isinstance(target.operator, cst.NotEqual | cst.NotIn):
        return lambda updated: _fitted(
            plan,
            node,
            expression("{rest} or {name} == {cpu}", name=name, cpu=_cpu(plan, node), rest=_operand(build(updated))),
        )
    if isinstance(target.operator, cst.Equal) and text_of(target.comparator) == "cuda":
        second = cst.ComparisonTarget(cst.NotEqual(), _cpu(plan, node))
        return lambda updated: _fitted(plan, node, _longer(build(updated), second))
    return also_other_than_cpu(plan, node, build)


def _has_others(collection: cst.BaseExpression) -> bool:
    """Return whether ``("cuda", "mps")`` also lists other devices, which keep their answer on a CPU."""
    return isinstance(collection, cst.List | cst.Tuple | cst.Set) and len(collection.elements) > 1


def _longer(new: Any, second: cst.ComparisonTarget) -> cst.BaseExpression:
    return new.with_changes(comparisons=[*new.comparisons, second])  # type: ignore[no-any-return]  # a comparison


def _is_accelerator_or_cpu(plan: Plan, comparison: cst.Comparison) -> bool:
    """Return whether ``device`` of ``device.type == "cuda"`` is always this machine's accelerator or the CPU.

    Then its type is the accelerator's exactly if it is not "cpu".
    """
    left = comparison.left
    if not isinstance(left, cst.Attribute) or left.attr.value != "type" or plan.view.parameter(left.value) is not None:
        return False
    values = plan.view.values_of(left.value)
    is_own = isinstance(left.value, cst.Name) or (dotted(left.value) or "").startswith("self.")
    return bool(values) and is_own and all(_is_of_machine(plan, value) for value in values)


def _is_of_machine(plan: Plan, value: cst.BaseExpression) -> bool:
    one = plan.decisions.get(value)
    if text_of(value) == "cpu" or (one is not None and one.rule in ("device-choice", "device-name")):
        return text_of(value) == "cpu" or (one is not None and one.outcome is SiteOutcome.REWRITTEN)
    if isinstance(value, cst.IfExp):
        return _is_of_machine(plan, value.body) and _is_of_machine(plan, value.orelse)
    is_made = isinstance(value, cst.Call) and plan.view.name(value.func) == "torch.device" and len(value.args) == 1
    return is_made and isinstance(value, cst.Call) and _is_of_machine(plan, value.args[0].value)


# Numbers of devices


def rewrite_count(plan: Plan, call: cst.Call) -> None:
    """Rewrite ``torch.cuda.device_count()`` so that it stays 0 on a CPU."""
    found = _of_count(plan, call)
    assert found is not None  # noqa: S101  # the caller has checked that the target has the member
    if _is_for_cuda(plan, call) or _asks_nvidia(plan, call):
        plan.report(
            call.func, "runtime-call", _OF_COUNT, "precision", lambda _: expression(str(plan.function("device_count")))
        )
        return
    node, build = found
    if not plan.is_open(node):  # another count in the same comparison
        node, build = call, _counted(plan, call)
    plan.rewrite(node, "runtime-call", build, (call,))
    if node is not call:
        plan.exact[node] = node


def _of_count(plan: Plan, call: cst.Call) -> tuple[cst.CSTNode, Build] | None:
    """Return the rewrite of a number of devices, or of the comparison that it is in."""
    name, count = plan.device_name(), plan.function("device_count")
    if name is None or count is None:
        return None
    around = plan.view.parent(call)
    if not plan.target.package or is_guarded(plan, call):
        return call, fixed(plan, call, expression(f"{count}()"))
    if isinstance(around, cst.Comparison) and around.left is call:
        found = _of_comparison(plan, around, name, f"{count}()")
        if found is not None:
            return found
    if _is_truth(plan, call):
        return _whether_other(plan, call, name)
    return call, _counted(plan, call)


def _counted(plan: Plan, call: cst.Call) -> Build:
    return only_on_accelerator(plan, call, lambda _: expression(f"{plan.function('device_count')}()"))


def only_on_accelerator(plan: Plan, call: cst.Call, build: Callable[[cst.Call], cst.BaseExpression]) -> Build:
    """Return a builder of ``… if device_name() != "cpu" else 0`` around what another builder makes."""
    name = plan.device_name()
    assert name is not None  # noqa: S101  # checked by the callers
    return lambda updated: _fitted(
        plan,
        call,
        expression("{figure} if {name} != {cpu} else 0", figure=build(updated), name=name, cpu=_cpu(plan, call)),
    )


def _is_truth(plan: Plan, call: cst.CSTNode) -> bool:
    around = plan.view.parent(call)
    if isinstance(around, cst.If | cst.IfExp | cst.While | cst.Assert):
        return around.test is call
    return isinstance(around, cst.UnaryOperation) and isinstance(around.operator, cst.Not)


def _of_comparison(
    plan: Plan, node: cst.Comparison, name: cst.BaseExpression, count: str
) -> tuple[cst.CSTNode, Build] | None:
    """Return the rewrite of ``device_count() > 1`` and the like; None if it is not a comparison with one number."""
    target = node.comparisons[0]
    holds = HOLDS.get(type(target.operator))  # None for "in" and "is"
    if len(node.comparisons) != 1 or holds is None or not isinstance(target.comparator, cst.Integer):
        return None
    number = int(target.comparator.value, 0)
    none, first = holds(0, number), holds(1, number)
    if none != first and all(holds(each, number) == first for each in range(1, number + 2)):
        return _whether_other(plan, node, name, is_negated=none)
    joined = "{rest} or {name} == {cpu}" if none else "{rest} and {name} != {cpu}"

    def build(updated: cst.Comparison) -> cst.BaseExpression:
        rest = updated.with_changes(left=expression(count), lpar=[], rpar=[])
        return _fitted(plan, node, expression(joined, name=name, cpu=_cpu(plan, node), rest=rest))

    return node, build
