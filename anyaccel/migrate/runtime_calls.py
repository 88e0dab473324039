"""The rules runtime-call, streams, memory, rng, graphs and nvtx: what ``torch.cuda`` and the contract both have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .call_arguments import as_index, not_taken, renamed_device, without_defaults, without_literal_device
from .current_device import decide_current_device
from .device_text import index_in, is_device_literal
from .exact import only_on_accelerator, rewrite_count, state_exactly
from .generator_states import decide_all_states, decide_restoring_states, keep_from_cpu
from .guarded_places import is_guarded
from .kinds import Kind, kind_of
from .mentions import decide_mention
from .nodes import dotted, library_of
from .questions import OF_HANDLE, OF_MESSAGE, is_compared, is_count_needed, is_in_text_of_cuda, is_shown
from .site import SiteOutcome
from .source_view import text_of
from .targets import expression, parsed
from .torch_names import ADVICE, INDEXED, MEMBERS, PROMISED, RULE_OF

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["decide", "references"]

_FIGURES = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
_OF_FIGURE = "compares a memory figure, which is 0 without CUDA; decide what the figure of another device means here"
_PREFIX = "torch.cuda."
_MODELS = re.compile(r"""["'](NVIDIA )?(A[1-9]0+|[AHB][1-3]00|V100|P100|T4|L40?S?|RTX|GTX|Tesla|GeForce|Quadro)\b""")
_PORTABLE = ("init", "is_initialized", "get_device_capability", "is_bf16_supported", "current_device")
"""Names that a developer can port by hand, so that a report on them does not count as specific to CUDA."""


def references(plan: Plan) -> list[tuple[cst.CSTNode, str]]:
    """Return every maximal dotted name that refers to ``torch.cuda``, with its full name."""
    found = []
    for node, name in plan.view.imported.items():
        around = plan.view.parent(node)
        is_longest = not (isinstance(around, cst.Attribute) and around.value is node)
        if is_longest and (name == "torch.cuda" or name.startswith(_PREFIX)):
            found.append((node, name))
    return found


def decide(plan: Plan) -> None:
    """Decide on every reference to ``torch.cuda`` that no other rule has decided on or claimed."""
    targets = [each.target for each in plan.view.of(cst.AssignTarget) if plan.view.name(each.target)]
    replaced = {(plan.view.name(each), plan.view.function_around(each)) for each in targets}
    for node in plan.view.rebound:
        plan.report(node, "runtime-call", "the name is torch.cuda's or another one; use two names")
    for node, full_name in references(plan):
        if not plan.is_open(node):
            continue
        name = full_name.removeprefix(_PREFIX)
        rule = (
            "memory" if "memory" in name else "nvtx" if name.startswith("nvtx") else RULE_OF.get(name, "runtime-call")
        )
        if node in plan.view.ambiguous:
            plan.report(node, rule, "the name comes from several imports; keep one of them")
            continue
        around = plan.view.parent(node)
        if (full_name, plan.view.function_around(node)) in replaced:
            plan.report(node, rule, f"{full_name} is replaced here; decide what is replaced on other devices")
        elif isinstance(around, cst.Call) and around.func is node:
            _decide_call(plan, around, name, rule)
            keep_from_cpu(plan, around, name)
        elif isinstance(around, cst.Subscript) and name == "default_generators":
            _decide_generator(plan, around, rule)
        else:
            decide_mention(plan, node, name, rule)
        one = plan.decisions.get(node)
        if name in ("is_initialized", "_initialized") and one is not None and one.outcome is SiteOutcome.REWRITTEN:
            asked = around if isinstance(around, cst.Call) and around.func is node else node
            state_exactly(plan, one, asked)  # a CPU is always initialized


def _decide_call(plan: Plan, call: cst.Call, name: str, rule: str) -> None:
    if any(argument.star for argument in call.args):
        plan.report(call.func, rule, "the arguments are in a list or a dictionary; write them as separate arguments")
    elif name == "current_device":
        decide_current_device(plan, call, rule)
    elif name == "device_count" and is_shown(plan, call) and not is_guarded(plan, call):
        plan.leave(call.func, rule, "the number of CUDA devices, in a message")
    elif name == "is_available" and is_in_text_of_cuda(plan, call):
        plan.leave(call.func, rule, OF_MESSAGE)
    elif name == "device_count" and not is_count_needed(plan, call) and plan.function(name) is not None:
        rewrite_count(plan, call)
    elif name in _FIGURES and is_compared(plan, call):
        plan.report(call, rule, _OF_FIGURE)
        plan.claim(*call.args)
    elif name in _FIGURES and _is_also_of_cpu(plan, call, name):
        _decide_figure(plan, call, name, rule)
    elif name in INDEXED:
        _decide_indexed(plan, call, *INDEXED[name], rule)
    elif name == "get_device_name":
        _decide_device_name(plan, call, rule)
    elif name == "device_of" and len(call.args) == 1 and isinstance(plan.view.parent(call), cst.WithItem):
        _decide_device_of(plan, call, rule)
    elif name == "set_rng_state_all" and len(call.args) == 1:
        decide_restoring_states(plan, call, rule)
    elif name in ("current_stream", "default_stream", "Stream") and _is_raw_handle(plan, call):
        plan.report(call.func, rule, OF_HANDLE, is_own=True)
    elif name == "Event" and _is_of_processes(call):
        plan.report(call.func, rule, "an event that processes share, which only CUDA has", is_own=True)
    elif name == "get_rng_state_all" and not call.args:
        decide_all_states(plan, call, rule)
    elif name == "get_device_properties" and _is_of_total(plan, call):
        _decide_total(plan, call, rule)
    elif name == "mem_get_info" and plan.function("mem_get_info") is None and len(call.args) < 2:
        _decide_memory(plan, call, rule)
    elif name in ("get_device_properties", "memory_stats") and _reads_cudas_own(plan, call):
        what = "a property that only CUDA has; other devices have name and total_memory"
        if name == "memory_stats":
            what = "a figure that only CUDA has; get_accelerator() has memory_allocated(), memory_reserved() and their maxima"
        reason = f"reads {what}"
        plan.report(call, rule, reason, is_own=True)
        plan.claim(*call.args)
    elif name == "get_device_capability" and _imports_flash_attn(plan) and not is_guarded(plan, call):
        plan.leave(call.func, rule, "for flash_attn, which the module cannot do without")
    elif name in MEMBERS and not (name == "is_bf16_supported" and call.args):
        _decide_same(plan, call, MEMBERS[name], rule)
    else:
        reason = ADVICE.get(name, f"{plan.target.name} has nothing like torch.cuda.{name}")
        named = [each.value for each in call.args if is_device_literal(each.value)]
        plan.report(call if named else call.func, rule, reason, is_own=name not in _PORTABLE)
        plan.claim(*named)


def _is_of_processes(call: cst.Call) -> bool:
    """Return whether ``Event(interprocess=…)`` may make an event that processes share."""
    given = (each.value for each in call.args if each.keyword is not None and each.keyword.value == "interprocess")
    return any(dotted(each) != "False" for each in given)


def _imports_flash_attn(plan: Plan) -> bool:
    """Return whether a module imports flash_attn at its top, in no ``try``: CUDA's kernels are all that it is for."""
    lines = [each for each in plan.view.module.body if isinstance(each, cst.SimpleStatementLine)]
    found = [each for line in lines for each in line.body if isinstance(each, cst.Import | cst.ImportFrom)]
    return any(library_of(each) == "flash_attn" for each in found)


def _decide_same(plan: Plan, call: cst.Call, member: str, rule: str) -> None:
    function = plan.function(member)
    if function is None:
        plan.report(call.func, rule, plan.without(member))
        return
    if other := not_taken(call, member):
        plan.report(call.func, rule, f"passes {other}, which {member}() of {plan.target.name} does not take")
        return
    if member == "Event" and len(without_defaults(call).args) < len(call.args):
        plan.rewrite(call, rule, lambda updated: without_defaults(updated).with_changes(func=parsed(function)))
        plan.claim(call.func)
        return
    takes_device = member not in (
        "stream",
        "set_stream",
        "Event",
        "capture_to_graph",
        "range_push",
        "lazy_call",
        "create_graph",
    )
    if takes_device and call.args and member != "Stream":
        literal = call.args[0]
        plan.rewrite(
            call,
            rule,
            lambda updated: renamed_device(without_literal_device(plan.view, call, updated), function),
            (literal.value,) if without_literal_device(plan.view, call, call) is not call else (),
        )
        plan.claim(call.func)
        return
    plan.call_in_place(call.func, rule, member)


def _is_also_of_cpu(plan: Plan, call: cst.Call, member: str) -> bool:
    """Return whether a CPU evaluates a call for which the target has a member: no question or assertion stops it before."""
    is_asserted = any(isinstance(each, cst.Assert) for each in plan.view.ancestors(call))
    is_known = plan.target.package != "" and plan.function(member) is not None
    return is_known and not is_asserted and not is_guarded(plan, call)


def _decide_figure(plan: Plan, call: cst.Call, member: str, rule: str) -> None:
    """Rewrite a figure of the device's memory, which was 0 without CUDA: a CPU's would be the process's own."""
    _decide_same(plan, call, member, rule)
    one = plan.decisions.get(call) or plan.decisions.get(call.func)
    if one is not None and one.build is not None:
        plan.move(one, call, only_on_accelerator(plan, call, one.called))


def _decide_indexed(plan: Plan, call: cst.Call, member: str, place: int, rule: str) -> None:
    """Decide on a call whose argument must be an index in the contract but may be a device in torch."""
    function = plan.function(member)
    named = [argument for argument in call.args if argument.keyword and argument.keyword.value == "device"]
    given = named[0] if named else call.args[place] if len(call.args) > place else None
    if function is None:
        plan.report(call.func, rule, plan.without(member))
        return
    if given is None and member == "device_guard":
        plan.report(call, rule, "called without a device; pass one")
        return
    if given is None or (given.keyword and not named):
        plan.call_in_place(call.func, rule, member)
        return
    if member == "device_guard" and not isinstance(plan.view.parent(call), cst.WithItem):
        plan.report(call, rule, "stored as a value; use with get_accelerator().device_guard(i)")
        plan.claim(*call.args)
        return
    takes_devices = member in ("set_device", "device_guard") and plan.target.name == "anyaccel"
    is_index = as_index(plan.view, given.value) is not None or kind_of(plan.view, given.value) is Kind.INDEX
    is_plain = is_device_literal(given.value) and index_in(given.value) is None
    if not is_index and (not takes_devices or is_plain):
        reason = f"{member} takes an index; pass the index of {plan.view.code(given.value)} if it is a device"
        plan.report(call, rule, reason)
        plan.claim(*call.args)
        return
    position = call.args.index(given)
    plan.rewrite(
        call,
        rule,
        lambda updated: _with_index(plan, call, updated, position).with_changes(func=parsed(function)),
        (given.value,) if as_index(plan.view, given.value) is not None else (),
    )
    plan.claim(call.func)


def _with_index(plan: Plan, call: cst.Call, updated: cst.Call, position: int) -> cst.Call:
    argument = updated.args[position]
    index = as_index(plan.view, call.args[position].value)
    value = argument.value if index is None else index
    changed = argument.with_changes(value=value, keyword=None, equal=cst.MaybeSentinel.DEFAULT)
    return updated.with_changes(args=[*updated.args[:position], changed, *updated.args[position + 1 :]])


def _decide_device_name(plan: Plan, call: cst.Call, rule: str) -> None:
    function = plan.function("get_device_properties")
    if function is None:
        plan.report(call.func, rule, plan.without("get_device_properties"))
        return
    around = next((each for each in plan.view.ancestors(call) if isinstance(each, cst.FunctionDef)), plan.view.module)
    if _MODELS.search(plan.view.code(around)):
        plan.report(call.func, rule, "names models of NVIDIA's; decide what other devices answer", is_own=True)
        return
    plan.rewrite(
        call,
        rule,
        lambda updated: cst.Attribute(
            renamed_device(without_literal_device(plan.view, call, updated), function), cst.Name("name")
        ),
        (call.args[0].value,) if call.args and without_literal_device(plan.view, call, call) is not call else (),
    )
    plan.claim(call.func)


def _decide_device_of(plan: Plan, call: cst.Call, rule: str) -> None:
    """Rewrite ``device_of(x)`` as a guard for ``x.get_device()``; for a CPU tensor (-1) neither changes the device."""
    function = plan.function("device_guard") if plan.target.name == "anyaccel" else None
    if function is None:
        plan.report(call.func, rule, plan.without("device_guard for a tensor"))
        return
    plan.rewrite(
        call, rule, lambda updated: expression(f"{function}({{x}}.get_device())", x=updated.args[0].value), (call.func,)
    )


def _is_of_total(plan: Plan, call: cst.Call) -> bool:
    """Return whether only ``total_memory`` is read, for a target that has it but no ``get_device_properties``."""
    around = plan.view.parent(call)
    is_total = isinstance(around, cst.Attribute) and around.attr.value == "total_memory"
    return is_total and plan.function("get_device_properties") is None and plan.function("total_memory") is not None


def _decide_total(plan: Plan, call: cst.Call, rule: str) -> None:
    function, around = plan.function("total_memory"), plan.view.parent(call)
    index = _index_given(plan, call)
    if around is None or function is None or index is None:
        plan.report(call.func, rule, plan.without("get_device_properties for a device by name"))
        return
    plan.rewrite(around, rule, lambda _: parsed(f"{function}({index})"), (call,))


def _decide_memory(plan: Plan, call: cst.Call, rule: str) -> None:
    """Rewrite ``mem_get_info()`` for a target that has only ``available_memory`` and ``total_memory``."""
    free, total = plan.function("available_memory"), plan.function("total_memory")
    index = _index_given(plan, call)
    if free is None or total is None or index is None:
        plan.report(call.func, rule, plan.without("mem_get_info"))
        return
    plan.rewrite(call, rule, lambda _: parsed(f"({free}({index}), {total}({index}))"), tuple(call.children))


def _index_given(plan: Plan, call: cst.Call) -> str | None:
    """Return the code of a call's index argument; empty for the current device, None if it is not an index."""
    if not call.args:
        return ""
    given = call.args[0].value
    index = as_index(plan.view, given)
    if index is None and kind_of(plan.view, given) is not Kind.INDEX:
        return None
    return plan.view.code(given if index is None else index)


def _reads_cudas_own(plan: Plan, call: cst.Call) -> bool:
    """Return whether a property or statistic that not every device has is read from a call, or from its variable."""
    for node in plan.view.of(cst.Attribute, cst.Subscript):
        if node.value is not call and call not in plan.view.values_of(node.value):
            continue
        if isinstance(node, cst.Attribute) and node.attr.value not in PROMISED:
            return True
        inside = node.slice[0].slice if isinstance(node, cst.Subscript) else None
        key = text_of(inside.value) if isinstance(inside, cst.Index) else None
        if key is not None and not key.startswith(("allocated_bytes.all.", "reserved_bytes.all.")):
            return True
    return False


def _is_raw_handle(plan: Plan, call: cst.Call) -> bool:
    return any(
        node.attr.value == "cuda_stream" and (node.value is call or call in plan.view.values_of(node.value))
        for node in plan.view.of(cst.Attribute)
    )


def _decide_generator(plan: Plan, node: cst.Subscript, rule: str) -> None:
    function = plan.function("default_generator")
    inside = node.slice[0].slice if len(node.slice) == 1 else None
    if function is None or not isinstance(inside, cst.Index):
        plan.report(node.value, rule, plan.without("default_generator") if function is None else "not one generator")
        return
    plan.rewrite(
        node, rule, lambda updated: expression(f"{function}({{i}})", i=updated.slice[0].slice.value), (node.value,)
    )
