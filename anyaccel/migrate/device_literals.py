"""The rule device-name: ``"cuda"``, ``f"cuda:{i}"`` and similar expressions that name a device."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .communication import is_of_type
from .device_positions import is_device_position, is_location
from .device_text import ACCELERATORS, index_in, is_device_literal, own_text
from .kinds import Kind, kind_of
from .source_view import dotted, text_of
from .words import OF_WORD, is_constant_beside_cpu

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["decide", "take_torch_device"]

RULE = "device-name"
_COMPARES = re.compile(r"assert(Not)?Equal\(|assert_|(==|!=)[^\n]*(device|cuda)|device[^\n]*(==|!=)")
_NUMBERED = re.compile(r"""["']cuda:(\d+)["']""")
_DEVICES = {"cpu", "cuda", "mps", "meta", "gpu", "tpu", "auto", *ACCELERATORS}
_SAVED = re.compile(r"rng|state|checkpoint|ckpt|snapshot|saved", re.IGNORECASE)
_DEFAULT = re.compile(r"(\bdefault(?:s to|:|=| is)? *['`\"]*)cuda\b(?!:)", re.IGNORECASE)
_OTHER_KEYWORDS = re.compile(
    r"^(impl|implementation|kernel|mode|provider|engine|dest|metavar|help|name|lang|language)$"
)
_KERNELS = re.compile(r"(^|_)(triton|cutlass|cute|nvrtc|cudnn|cublas\w*|cupy|tensorrt|xformers|flash_?attn)(_|$)")
_OTHER_OPTIONS = re.compile(r"[-_](sort|provider|engine)$")


def decide(plan: Plan) -> None:
    """Decide on every device literal that no other rule has claimed."""
    for node in plan.view.of(
        cst.BinaryOperation, cst.Call, cst.ConcatenatedString, cst.FormattedString, cst.SimpleString
    ):
        if plan.is_open(node) and is_device_literal(node):
            _decide_literal(plan, node)
    for node in plan.view.of(cst.Call):
        if plan.is_open(node) and plan.view.name(node.func) == "torch.device":
            _take_number(plan, node)


def _decide_literal(plan: Plan, node: cst.BaseExpression) -> None:
    where = is_device_position(plan.view, node)
    if is_of_type(plan.view, node):
        plan.leave(node, RULE, "a type that lists devices")
    elif _is_saved_place(plan, node):
        plan.leave(node, RULE, "names where a checkpoint was saved; a checkpoint of another device has no such name")
    elif _is_of_backend(plan, node):
        plan.leave(node, RULE, "a table of backends by device, of which this is CUDA's")
    elif _is_entry(plan, node):
        plan.leave(node, RULE, "the name of an entry in a dictionary of the program's own")
    elif _is_of_enum(plan, node):
        plan.leave(node, RULE, "CUDA's member of an enumeration of devices, which has one for the CPU, too")
    elif _is_among_words(plan, node):
        plan.leave(node, RULE, "one of several words, of which most are no devices")
    elif _is_listed_with_others(plan, node):
        plan.leave(node, RULE, "one of several accelerators that are listed by name, which is correct on every machine")
    elif _is_of_toolkit(plan, node):
        plan.leave(node, RULE, "the toolkit that an extension is built with, not a device")
    elif _is_of_registration(plan, node):
        plan.leave(node, RULE, "registers CUDA's implementation of an op")
    elif _is_beside_cpu(plan, node) or _is_beside_call_for_cpu(plan, node):
        plan.report(node, RULE, "listed next to the CPU, which would be there twice; decide what the list holds then")
    elif is_constant_beside_cpu(plan.view, node):
        plan.report(node, RULE, OF_WORD)
    elif _is_told_apart(plan, node):
        plan.report(
            node,
            RULE,
            "one of several numbered devices that the code compares; decide what to do if there is one device",
        )
    elif _names_something_else(plan, node) or _is_of_other_option(plan, node):
        plan.leave(node, RULE, "names an implementation or an option, not a device")
    elif _is_of_torchs_module(plan, node):
        plan.leave(node, RULE, "the name of a module of torch, which is there on every machine")
    elif _is_of_kernels(plan, node):
        plan.leave(node, RULE, "what kernels for CUDA are for, which are described beside it")
    elif where.is_device:
        _rewrite(plan, node)
    else:
        can_port = plan.device_name(index_in(node)) is not None
        build = (lambda updated: plan.named(index_in(updated))) if can_port else None
        plan.report(node, RULE, where.reason, "device-text", build)
    plan.claim(*own_text(node))


def _is_of_torchs_module(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether ``name = "cuda" if … else name`` is only for ``getattr(torch, name)``, and shown in messages."""
    choice = plan.view.parent(node)
    assigned = plan.view.parent(choice) if isinstance(choice, cst.IfExp) else None
    uses = plan.view.uses(assigned.targets[0].target) if isinstance(assigned, cst.Assign) else None
    read = [each for each in uses or () if not plan.view.is_within(each, choice or node)]
    calls = [plan.view.parent(plan.view.parent(each) or each) for each in read]
    shown = [isinstance(plan.view.parent(each), cst.FormattedStringExpression) for each in read]
    gets = [isinstance(each, cst.Call) and plan.view.code(each).startswith("getattr(torch,") for each in calls]
    return any(gets) and all(one or other for one, other in zip(gets, shown, strict=True))


def _is_of_kernels(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether a device is one of several facts of kernels for CUDA: ``Backend(name="triton", device="cuda")``."""
    argument = plan.view.parent(node)
    call = plan.view.parent(argument) if isinstance(argument, cst.Arg) and argument.keyword is not None else None
    if not isinstance(call, cst.Call) or plan.view.name(call.func).startswith("torch."):
        return False
    texts = (text_of(each) or "" for arg in call.args for each in plan.view.inside(arg.value, cst.SimpleString))
    return any(_KERNELS.search(each) for each in texts)


def _is_saved_place(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether a device name is a key of ``map_location={"cuda:0": …}``."""
    element = plan.view.parent(node)
    item = plan.view.parent(plan.view.parent(element) or node) if isinstance(element, cst.Index) else None
    if isinstance(item, cst.Subscript) and isinstance(plan.view.parent(item), cst.AssignTarget):
        return (dotted(item.value) or "").endswith("map_location")
    is_key = isinstance(element, cst.DictElement) and element.key is node
    return is_key and element is not None and is_location(plan.view, plan.view.parent(element))


def _is_of_backend(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether a device name is the key for NCCL in a table such as ``{"cuda": "nccl", "cpu": "gloo"}``."""
    element = plan.view.parent(node)
    is_key = isinstance(element, cst.DictElement) and element.key is node
    return is_key and isinstance(element, cst.DictElement) and "nccl" in plan.view.code(element.value).lower()


def _is_entry(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether ``"cuda"`` is the name of an entry beside others that are no devices, or reads such an entry.

    ``{"torch": …, "cuda": …}`` is a record, and ``{"cpu": 128, "cuda": 512}`` is a table by device. ``state["rng"]["cuda"]``
    reads an entry of a checkpoint by the name that it was written under.
    """
    around = plan.view.parent(node)
    if isinstance(around, cst.Index):
        read = plan.view.parent(plan.view.parent(around) or node)
        name = plan.view.code(read.value) if isinstance(read, cst.Subscript) else ""
        return text_of(node) == "cuda" and _SAVED.search(name) is not None
    table = plan.view.parent(around) if isinstance(around, cst.DictElement) and around.key is node else None
    if not isinstance(table, cst.Dict):
        return False
    keys = {text_of(each.key) for each in table.elements if isinstance(each, cst.DictElement)}
    return text_of(node) == "cuda" and None not in keys and len(keys - _DEVICES) > 1


def _is_of_enum(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether a name is the value of ``CUDA`` in an ``Enum`` that also has ``CPU = "cpu"``.

    With another value ``CUDA`` would be another name for that member, and ``Device("cuda")`` would fail on other devices.
    """
    assign = plan.view.parent(node)
    owner = plan.view.class_around(node)
    if not isinstance(assign, cst.Assign) or not isinstance(owner, cst.ClassDef):
        return False
    is_enum = any((dotted(base.value) or "").endswith("Enum") for base in owner.bases)
    values = [each.value for each in plan.view.inside(owner.body, cst.Assign)]
    return is_enum and assign.value in values and any(text_of(each) == "cpu" for each in values)


def _is_among_words(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether a name is in a list, tuple or set of plain texts of which more than one is no device."""
    listed = plan.view.parent(plan.view.parent(node) or node)
    if not isinstance(listed, cst.List | cst.Tuple | cst.Set):
        return False
    words = {(text_of(each.value) or "").lower() for each in listed.elements}
    return "" not in words and len(words - _DEVICES) > 1


def _is_listed_with_others(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether a name is in a list, tuple or set that also names XPU, NPU or another such accelerator."""
    element = plan.view.parent(node)
    listed = plan.view.parent(element) if isinstance(element, cst.Element) else None
    if not isinstance(listed, cst.List | cst.Tuple | cst.Set):
        return False
    return bool({text_of(each.value) for each in listed.elements} & ACCELERATORS)


def _is_of_registration(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether a name says for which device a function registers an op's implementation with torch.library."""
    for around in plan.view.ancestors(node):
        if isinstance(around, cst.Call):
            return plan.view.name(around.func).startswith("torch.library.")
        if isinstance(around, cst.BaseStatement):
            break
    return False


def _is_of_toolkit(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether a name is an argument of ``torch.utils.cpp_extension.include_paths(device_type="cuda")``."""
    argument = plan.view.parent(node)
    call = plan.view.parent(argument) if isinstance(argument, cst.Arg) else None
    return isinstance(call, cst.Call) and plan.view.name(call.func).startswith("torch.utils.cpp_extension.")


def _is_beside_cpu(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether ``torch.device("cuda")`` is in a list, tuple or set with ``torch.device("cpu")``, and not unpacked."""
    argument = plan.view.parent(node)
    call = plan.view.parent(argument) if isinstance(argument, cst.Arg) else None
    listed = plan.view.parent(plan.view.parent(call) or node) if isinstance(call, cst.Call) else None
    if not isinstance(listed, cst.List | cst.Tuple | cst.Set) or not isinstance(call, cst.Call):
        return False
    around = plan.view.parent(listed)
    is_unpacked = isinstance(around, cst.Assign) and isinstance(around.targets[0].target, cst.Tuple)
    if plan.view.name(call.func) != "torch.device" or is_unpacked:
        return False
    made = (each.value for each in listed.elements)
    return any(isinstance(each, cst.Call) and each.args and text_of(each.args[0].value) == "cpu" for each in made)


def _is_beside_call_for_cpu(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether the statement next to ``register("cuda")`` is ``register("cpu")``."""
    argument = plan.view.parent(node)
    call = plan.view.parent(argument) if isinstance(argument, cst.Arg) else None
    line = plan.view.parent(plan.view.parent(call) or node) if isinstance(call, cst.Call) else None
    block = plan.view.parent(line) if isinstance(line, cst.SimpleStatementLine) else None
    body: list[cst.CSTNode] = list(block.body) if isinstance(block, cst.IndentedBlock | cst.Module) else []
    if line not in body or not isinstance(call, cst.Call):
        return False
    place = body.index(line)
    code = plan.view.code(call)
    beside = [plan.view.code(each).strip() for each in (*body[max(0, place - 1) : place], *body[place + 1 : place + 2])]
    return code.replace(plan.view.code(node), '"cpu"', 1) in [each.replace("'", '"') for each in beside]


def _is_told_apart(plan: Plan, node: cst.BaseExpression) -> bool:
    """Return whether a literal is one of several numbered devices in a function that compares devices.

    On a CPU there is only one device, so the two names may refer to the same device. Beside such a name, one without
    a number is one of them.
    """
    pair = next((each for each in plan.view.ancestors(node) if isinstance(each, cst.Tuple | cst.List)), None)
    number = plan.view.code(index) if is_device_literal(node) and (index := index_in(node)) is not None else ""
    function = next((each for each in plan.view.ancestors(node) if isinstance(each, cst.FunctionDef)), None)
    is_paired = not number and pair is not None and _NUMBERED.search(plan.view.code(pair)) is not None
    is_paired |= not number and function is not None and _is_compared(plan, node, function)
    if not (number.isdigit() or is_paired) or function is None or not _COMPARES.search(plan.view.code(function)):
        return False
    return len(set(_NUMBERED.findall(plan.view.code(function)))) > 1


def _is_of_other_option(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether a name is of an option for something else, or what ``add_argument("--cuda", const="cuda")`` stores."""
    around = plan.view.parent(plan.view.parent(plan.view.parent(node) or node) or node)
    argument = around if isinstance(around, cst.Arg) else plan.view.parent(node)
    call = plan.view.parent(argument) if isinstance(argument, cst.Arg) and argument.keyword is not None else None
    if not isinstance(call, cst.Call) or (dotted(call.func) or "").rpartition(".")[2] != "add_argument":
        return False
    is_const = isinstance(argument, cst.Arg) and argument.keyword is not None and argument.keyword.value == "const"
    options = [text_of(each.value) or "" for each in call.args if not each.keyword]
    return (is_const and "--cuda" in options) or any(_OTHER_OPTIONS.search(each) for each in options)


def _is_compared(plan: Plan, node: cst.CSTNode, function: cst.FunctionDef) -> bool:
    """Return whether a device is stored under a name that a function compares: ``d = torch.device("cuda")``, ``x == d``."""
    call = plan.view.parent(plan.view.parent(node) or node)
    line = plan.view.parent(call) if isinstance(call, cst.Call) else None
    name = dotted(line.targets[0].target) if isinstance(line, cst.Assign) else None
    compared = rf"[=!]= {re.escape(name)}\b|\b{re.escape(name)} [=!]=" if name is not None else ""
    return bool(compared) and re.search(compared, plan.view.code(function)) is not None


def _names_something_else(plan: Plan, node: cst.CSTNode) -> bool:
    argument = plan.view.parent(node)
    is_default = isinstance(argument, cst.Param) and argument.default is node
    keyword = argument.name if is_default and isinstance(argument, cst.Param) else None
    keyword = argument.keyword if isinstance(argument, cst.Arg) else keyword
    return keyword is not None and _OTHER_KEYWORDS.match(keyword.value) is not None


def _rewrite(plan: Plan, node: cst.BaseExpression) -> None:
    index = index_in(node)
    if plan.device_name(index) is None:
        plan.report(node, RULE, plan.without("name for a device with an index"))
        return

    plan.rewrite(node, RULE, lambda updated: plan.named(index_in(updated)))
    _correct_help(plan, node)


def _correct_help(plan: Plan, default: cst.CSTNode) -> None:
    """Let argparse fill in the default in ``help="(default: cuda)"``, since the default is no longer that."""
    argument = plan.view.parent(default)
    call = plan.view.parent(argument) if isinstance(argument, cst.Arg) else None
    if not isinstance(call, cst.Call) or (dotted(call.func) or "").rpartition(".")[2] != "add_argument":
        return
    for each in call.args:
        is_help = each.keyword is not None and each.keyword.value == "help" and isinstance(each.value, cst.SimpleString)
        if is_help and _DEFAULT.search(plan.view.code(each.value)) and plan.is_open(each.value):
            plan.rewrite(each.value, RULE, _with_default)


def _with_default(text: cst.SimpleString) -> cst.SimpleString:
    return text.with_changes(value=_DEFAULT.sub(r"\1%(default)s", text.value))


def take_torch_device(plan: Plan) -> None:
    """Decide on ``torch.device("cuda", i)``, whose two arguments become one device name."""
    for node in plan.view.of(cst.Call):
        if plan.view.name(node.func) != "torch.device" or len(node.args) != 2 or not plan.is_open(node):
            continue
        first, second = node.args
        if text_of(first.value) != "cuda" or (second.keyword is not None and second.keyword.value != "index"):
            continue
        if plan.device_name(second.value) is None:
            plan.report(node, RULE, plan.without("name for a device with an index"))
            plan.claim(first)
        else:
            plan.rewrite(node, RULE, lambda updated: _of_index(plan, updated, 1), (first,))


def _take_number(plan: Plan, node: cst.Call) -> None:
    """Decide on ``torch.device(rank)``, which is a CUDA device if torch is built with CUDA."""
    if len(node.args) != 1 or (isinstance(node.args[0].value, cst.Name) and node.args[0].value.value == "None"):
        return
    value = node.args[0].value
    if (
        not isinstance(value, cst.Call)
        and kind_of(plan.view, value) is Kind.INDEX
        and plan.device_name(value) is not None
    ):
        plan.rewrite(node, RULE, lambda updated: _of_index(plan, updated, 0))


def _of_index(plan: Plan, updated: cst.Call, place: int) -> cst.Call:
    return updated.with_changes(args=[cst.Arg(plan.named(updated.args[place].value))])
