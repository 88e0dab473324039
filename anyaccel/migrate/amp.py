"""The rule amp: rewrites ``torch.cuda.amp`` to ``torch.amp`` with the device type as an argument."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .call_arguments import NO_SPACE
from .exact import also_other_than_cpu
from .guarded_places import is_guarded
from .regions import regions_of
from .runtime_calls import references
from .source_view import dotted, text_of
from .targets import expression, parsed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .plan import Plan

__all__ = ["decide", "moving_names"]

RULE = "amp"
_PREFIX = "torch.cuda.amp."
_PARAMETERS = {
    "autocast": ("enabled", "dtype", "cache_enabled"),
    "GradScaler": ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled"),
}
_AUTOCAST = ("device_type", "dtype", "enabled", "cache_enabled")
_SCALER = ("device", "init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled")
_NAMED = {
    "torch.autocast": _AUTOCAST,
    "torch.amp.autocast": _AUTOCAST,
    "torch.amp.autocast_mode.autocast": _AUTOCAST,
    "torch.GradScaler": _SCALER,
    "torch.amp.GradScaler": _SCALER,
    "torch.amp.grad_scaler.GradScaler": _SCALER,
}
_QUESTIONS = {
    "torch.is_autocast_enabled": "asks about autocast on CUDA only; pass the device type to ask about another device",
    "torch.get_autocast_gpu_dtype": "asks for autocast's dtype on CUDA only; use torch.get_autocast_dtype(device_type)",
}
_SCALERS = ("torch.GradScaler", "torch.amp.GradScaler", "torch.amp.grad_scaler.GradScaler")
_OTHER_SCALERS = ("apex", "deepspeed", "fairscale", "paddle", "mindspore", "anyaccel", "accelerate")
_MAY_BE_ENABLED = "may get enabled=, which must be false on a CPU"
_AMBIGUOUS = "the name comes from several imports; keep one of them"
_DECORATORS = ("custom_fwd", "custom_bwd")


def decide(plan: Plan) -> None:
    """Decide on every reference to ``torch.cuda.amp``."""
    for node, full_name in references(plan):
        name = full_name.removeprefix(_PREFIX)
        if full_name == "torch.cuda.amp" and plan.is_open(node):
            _decide_module(plan, node)
        if not full_name.startswith(_PREFIX) or not plan.is_open(node):
            continue
        reason = _why_not(plan, node, name)
        if plan.device_name() is None or reason:
            plan.report(node, RULE, reason or plan.without("device_name"))
            around = plan.view.parent(node)
            if reason == _AMBIGUOUS and isinstance(around, cst.Call):
                plan.claim(*(each.value for each in around.args))  # the device is decided with the call
        else:
            _rewrite(plan, node, name)
    _decide_scalers(plan)
    _decide_named(plan)
    _decide_questions(plan)


def _decide_module(plan: Plan, node: cst.CSTNode) -> None:
    """Decide on the module, passed by keyword to a function of this file that only calls its ``autocast()``.

    Proof: what the function is given under that name is this module, or None, as no other has an ``autocast()`` that needs no
    device. The call is rewritten like any other. The module itself stays: it can be imported on every machine, and is only
    passed on.
    """
    argument = plan.view.parent(node)
    call = plan.view.parent(argument) if isinstance(argument, cst.Arg) and argument.keyword is not None else None
    if not isinstance(argument, cst.Arg) or argument.keyword is None or not isinstance(call, cst.Call):
        return
    is_partial = plan.view.name(call.func) == "functools.partial" and bool(call.args)
    taker = dotted(call.args[0].value if is_partial else call.func)
    functions = [each for each in plan.view.of(cst.FunctionDef) if each.name.value == taker]
    params = [*functions[0].params.params, *functions[0].params.kwonly_params] if len(functions) == 1 else []
    named = [each for each in params if each.name.value == argument.keyword.value]
    calls = [_call_of_autocast(plan, use) for each in named for use in plan.view.uses(each.name) or ()]
    if not calls or None in calls or plan.device_name() is None:
        return
    for each in (one for one in calls if one is not None and plan.is_open(one)):
        plan.rewrite(each, RULE, lambda updated: _call(plan, updated, "autocast", parsed("torch.amp.autocast")))
        plan.needs_torch = True
    plan.leave(node, RULE, "passed on to code that is rewritten; it can be imported on every machine")


def _call_of_autocast(plan: Plan, module: cst.CSTNode) -> cst.Call | None:
    """Return the call ``module.autocast(…)`` of a name that holds a module; None if the name is used in another way."""
    function = plan.view.parent(module)
    call = plan.view.parent(function) if isinstance(function, cst.Attribute) else None
    is_plain = isinstance(call, cst.Call) and call.func is function and not any(each.star for each in call.args)
    is_autocast = isinstance(function, cst.Attribute) and function.attr.value == "autocast"
    return call if is_plain and is_autocast and isinstance(call, cst.Call) else None


def _decide_partial(plan: Plan, call: cst.Call) -> None:
    """Decide on ``partial(torch.autocast, "cuda")``, like a call with these arguments."""
    parameters = _NAMED.get(plan.view.name(call.args[0].value), ()) if call.args and not call.args[0].keyword else ()
    device = _device(call.args[1:]) if parameters and not any(each.star for each in call.args) else None
    if device is None or not plan.is_open(call) or not plan.is_open(device.value) or plan.device_name() is None:
        return

    def build(updated: cst.Call) -> cst.Call:
        rest = _renamed(plan, updated.with_changes(args=updated.args[1:]), parameters)
        return rest.with_changes(args=[updated.args[0], *rest.args])

    plan.rewrite(call, RULE, build, (device.value,))


def _decide_named(plan: Plan) -> None:
    """Decide on ``torch.autocast("cuda")`` and ``torch.amp.GradScaler("cuda")``, which do nothing without CUDA."""
    for call in plan.view.of(cst.Call):
        if plan.view.name(call.func) == "functools.partial":
            _decide_partial(plan, call)
        parameters = _NAMED.get(plan.view.name(call.func), ()) or _passed_on(plan, call)
        device = _device(call.args) if parameters else None
        if device is None or not plan.is_open(call) or not plan.is_open(device.value) or plan.device_name() is None:
            continue
        names = () if is_guarded(plan, call) else parameters
        if names and any(each.star for each in call.args) and not _has_enabled(call):
            plan.report(call, RULE, _MAY_BE_ENABLED)
            plan.claim(device.value)
            continue
        plan.rewrite(call, RULE, lambda updated, names=names: _renamed(plan, updated, names), (device.value,))  # type: ignore[misc]


def _passed_on(plan: Plan, call: cst.Call) -> tuple[str, ...]:
    """Return the parameters of autocast or a scaler that a module of the project imports from torch; empty for others."""
    module, _, name = plan.view.name(call.func).rpartition(".")
    is_passed_on = module.rpartition(".")[2] in plan.project.passes_on.get(name, ())
    return (_SCALER if name == "GradScaler" else _AUTOCAST) if is_passed_on else ()


def _device(given: Sequence[cst.Arg]) -> cst.Arg | None:
    """Return the argument that names CUDA: the first, or one with the keyword; None if there is none."""
    named = [each for each in given if each.keyword is not None and each.keyword.value in ("device_type", "device")]
    first = [each for each in given[:1] if each.keyword is None and not each.star]
    return next((each for each in (*first, *named) if text_of(each.value) == "cuda"), None)


def _renamed(plan: Plan, call: cst.Call, parameters: tuple[str, ...]) -> cst.Call:
    """Return a call whose device is the accelerator; it is not enabled on a CPU, unless no parameters are given."""
    args, device = [], _device(call.args)
    for place, each in enumerate(call.args):
        is_enabled = not each.keyword and not each.star and parameters[place : place + 1] == ("enabled",)
        named = each.with_changes(keyword=cst.Name("enabled"), equal=NO_SPACE) if is_enabled else each
        args.append(each.with_changes(value=plan.named()) if each is device else named)
    args = _enabled(plan, args) if parameters else args
    space = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    last = len(args) - 1
    args = [
        each.with_changes(comma=space) if at < last and not isinstance(each.comma, cst.Comma) else each
        for at, each in enumerate(args)
    ]
    return call.with_changes(args=args)


def _decide_scalers(plan: Plan) -> None:
    """Decide on ``GradScaler()`` of ``torch.amp`` without a device, which is CUDA's.

    A class of that name from a module of the project may be torch's, so such a call is reported, unless that module imports it
    from ``torch.amp``.
    """
    for call in plan.view.of(cst.Call):
        name = plan.view.name(call.func)
        is_plain = not any(each.star or each.keyword is None or each.keyword.value == "device" for each in call.args)
        if not name.endswith(".GradScaler") or not is_plain or not plan.is_open(call) or not plan.is_open(call.func):
            continue
        if call.func in plan.view.ambiguous:
            plan.report(call, RULE, _AMBIGUOUS)
            continue
        root = name.partition(".")[0]
        if (name in _SCALERS or _passed_on(plan, call)) and plan.device_name() is not None:
            plan.rewrite(call, RULE, lambda updated: _call(plan, updated, "GradScaler", updated.func))
        elif root not in ("torch", *_OTHER_SCALERS):
            plan.report(call, RULE, "may be torch.amp's class, whose device is CUDA by default; pass the device")


def _decide_questions(plan: Plan) -> None:
    """Ask about the accelerator's autocast in place of CUDA's; on a CPU the answer stays no, as it was without CUDA.

    CUDA's dtype becomes the accelerator's where it is read only under a question whether autocast is enabled.
    """
    name = plan.device_name()
    for node in plan.view.of(cst.Call):
        reason = _QUESTIONS.get(plan.view.name(node.func))
        if reason is None or node.args or not plan.is_open(node):
            continue
        if name is not None and "dtype" not in reason:
            plan.rewrite(
                node, RULE, also_other_than_cpu(plan, node, lambda updated: _with_name(plan, updated)), (node.func,)
            )
            plan.exact[node] = node
        elif name is not None and _is_under_autocast(plan, node):
            plan.needs_torch = True
            new = expression("torch.get_autocast_dtype({name})", name=name)
            plan.rewrite(node, RULE, lambda _, new=new: new, (node.func,))  # type: ignore[misc]
        else:
            plan.report(node, RULE, reason)


def _with_name(plan: Plan, call: cst.Call) -> cst.BaseExpression:
    return call.with_changes(args=[cst.Arg(plan.named())])


def _is_under_autocast(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether code runs only if ``torch.is_autocast_enabled()`` is true."""
    asked = [each for each in plan.view.of(cst.Call) if plan.view.name(each.func) == "torch.is_autocast_enabled"]
    regions = [region for each in asked if not each.args for region in regions_of(plan.view, each).all]
    return any(plan.view.is_within(node, each) for each in regions)


def moving_names(plan: Plan) -> set[str]:
    """Return the names from ``torch.cuda.amp`` that the module can import from ``torch.amp`` instead.

    An import statement moves only if every use of its names is rewritten and no comment says to ignore it.
    """
    return {
        name
        for statement, names in _imports(plan).items()
        if not plan.view.is_ignored(statement, RULE)
        and plan.project.handed_on.isdisjoint(_brought(statement))
        and not plan.view.is_ignored(statement, "imports")
        and all(plan.is_rewritten(node) for nodes in names.values() for node in nodes)
        for name in _brought(statement)
    }


def _brought(statement: cst.CSTNode) -> list[str]:
    """Return every name that an import binds, including unused ones."""
    assert isinstance(statement, cst.ImportFrom)  # noqa: S101  # _imports() returns no other type
    names = () if isinstance(statement.names, cst.ImportStar) else statement.names
    return [alias.evaluated_alias or alias.evaluated_name for alias in names]


def _imports(plan: Plan) -> dict[cst.CSTNode, dict[str, list[cst.CSTNode]]]:
    """Return the references to each ``from torch.cuda.amp import …``, by name."""
    return {
        statement: names
        for statement, names in plan.view.import_references.items()
        if isinstance(statement, cst.ImportFrom)
        and plan.view.code(statement.module or cst.Name("x")) == "torch.cuda.amp"
    }


def _function(plan: Plan, node: cst.CSTNode, name: str) -> cst.BaseExpression:
    """Return the new callee: the same name if its import moves too, else the full name."""
    if isinstance(node, cst.Name) and node.value in moving_names(plan):
        return node
    plan.needs_torch = True
    return parsed(f"torch.amp.{name}")


def _why_not(plan: Plan, node: cst.CSTNode, name: str) -> str:
    around = plan.view.parent(node)
    if node in plan.view.ambiguous:
        return _AMBIGUOUS
    if plan.view.is_ignored(node, RULE):
        return "a comment says to ignore it"
    if name in _DECORATORS:
        is_plain = isinstance(around, cst.Decorator)
        is_called = isinstance(around, cst.Call) and around.func is node and all(arg.keyword for arg in around.args)
        return "" if is_plain or is_called else f"write @torch.amp.{name}(device_type=...)"
    if name not in _PARAMETERS:
        return f"torch.amp has nothing like torch.cuda.amp.{name}"
    if isinstance(around, cst.Call) and around.func is node:
        if any(each.star == "*" for each in around.args):
            return "the arguments are in a list; write them as separate arguments"
        return _MAY_BE_ENABLED if any(each.star for each in around.args) and not _has_enabled(around) else ""
    if name == "GradScaler" and (_is_type(plan, node) or isinstance(around, cst.ImportAlias)):
        return ""
    return f"torch.amp.{name} takes the device as its first argument; add it where this value is called"


def _has_enabled(call: cst.Call) -> bool:
    return any(each.keyword is not None and each.keyword.value == "enabled" for each in call.args)


def _is_type(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether a class is used only as a type: in an annotation or in a call of ``isinstance``."""
    for around in plan.view.ancestors(node):
        if isinstance(around, cst.Annotation):
            return True
        if isinstance(around, cst.Call):
            return isinstance(around.func, cst.Name) and around.func.value == "isinstance"
    return False


def _rewrite(plan: Plan, node: cst.CSTNode, name: str) -> None:
    """Replace the call, the bare decorator, or the class.

    The builders compute the new name when they run, because it depends on all other decisions.
    """
    around = plan.view.parent(node)
    if isinstance(around, cst.Call) and around.func is node:
        is_free = not is_guarded(plan, around)  # otherwise a CPU does not come here
        plan.rewrite(
            around,
            RULE,
            lambda updated: _call(plan, updated, name, _function(plan, node, name), is_free=is_free),
            (node,),
        )
    elif name in _DECORATORS:
        plan.rewrite(node, RULE, lambda _: _call(plan, cst.Call(cst.Name("f")), name, _function(plan, node, name)))
    else:
        plan.rewrite(node, RULE, lambda _: _function(plan, node, name))


def _enabled(plan: Plan, given: list[cst.Arg]) -> list[cst.Arg]:
    """Return the arguments of autocast or a scaler with ``enabled`` false on a CPU, where CUDA's does nothing."""
    name = plan.named()
    old = next((each for each in given if each.keyword is not None and each.keyword.value == "enabled"), None)
    if old is None:
        value = expression('{name} != "cpu"', name=name)
        return [*given, cst.Arg(value, keyword=cst.Name("enabled"), equal=NO_SPACE)]
    if "device_name() !=" in cst.Module([]).code_for_node(old.value) or dotted(old.value) == "False":
        return given
    is_weak = isinstance(old.value, cst.BooleanOperation | cst.IfExp | cst.Lambda) and not old.value.lpar
    rest = old.value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()]) if is_weak else old.value
    code = '{name} != "cpu"' if dotted(old.value) == "True" else '{rest} and {name} != "cpu"'
    value = expression(code, name=name, rest=rest) if "{rest}" in code else expression(code, name=name)
    return [each.with_changes(value=value) if each is old else each for each in given]


def _call(plan: Plan, call: cst.Call, name: str, function: cst.BaseExpression, *, is_free: bool = True) -> cst.Call:
    first = cst.Arg(plan.named(), keyword=cst.Name("device_type") if name in _DECORATORS else None)
    first = first.with_changes(equal=NO_SPACE) if first.keyword else first
    rest = []
    for place, argument in enumerate(call.args):
        if argument.keyword is None and not argument.star:
            keyword = cst.Name(_PARAMETERS[name][place])
            argument = argument.with_changes(keyword=keyword, equal=NO_SPACE)  # noqa: PLW2901
        rest.append(argument)
    rest = rest if name in _DECORATORS or not is_free else _enabled(plan, rest)
    if rest:
        first = first.with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
    return call.with_changes(func=function, args=[first, *rest])
