"""Follows the answer to a question that is stored or passed on: every use of it must be a test that is checked."""

from __future__ import annotations

import builtins
import re
import sys
from typing import TYPE_CHECKING

import libcst as cst

from .answers import Objection
from .neutral import is_given_to_neutral, is_option, is_option_given
from .other_libraries import is_foreign
from .regions import TRUTH
from .source_view import dotted
from .stored_answers import answer_name, parameter_given

if TYPE_CHECKING:
    from .plan import Plan
    from .regions import Regions

__all__ = ["OF_KERNELS", "of_constants", "of_value"]

_ELSEWHERE = Objection(
    "answer-goes-elsewhere",
    "its answer is used where the tool cannot follow it; decide what other devices answer there",
    is_of_cpu=True,
)
OF_KERNELS = Objection(
    "kernel-guard",
    "guards code that may work on CUDA only; use get_accelerator().on_accelerator(t) if every device can run it",
)
_OF_GPUS = Objection(
    "answer-goes-elsewhere",
    "says whether there is a GPU, by which a caller may mean CUDA; decide what other devices answer",
)
_OF_GRAPHS = Objection("depends-on-cuda", "decides whether to use CUDA's graphs; decide which other devices do")
_GRAPHS = re.compile(r"cuda_?graph", re.IGNORECASE)
_OF_GPU = re.compile(r"gpu|(use|supports?)_cuda_(?!(is_)?(available|enabled|devices?)$)")
_NAMES_CUDA = re.compile(r"cuda|gpu", re.IGNORECASE)
_CUDAS = re.compile(r"(^|\.)_?(CUDA|Cuda[A-Z])\w*$")
_OF_TUPLE = Objection(
    "answer-goes-elsewhere", "its answer is unpacked from a tuple; decide what other devices answer there"
)
_TO_LIBRARY = "{} takes its answer, and may mean CUDA by it; decide what other devices answer there"


def of_value(plan: Plan, found: Regions, named: list[Regions]) -> Objection | None:
    """Return an objection if an answer that is used as a value goes anywhere but into the tests in ``named``."""
    value = found.value
    if isinstance(value, cst.Expr) or is_given_to_neutral(plan.view, value):
        return None
    tested = [each.asked for each in named]
    if isinstance(value, cst.Lambda) and _is_only_asserted(plan, value):
        return OF_KERNELS
    if isinstance(value, cst.Return) and _is_of_gpus(plan, value):
        return _OF_GPUS
    if isinstance(value, cst.Element) and _is_unpacked(plan, value):
        return _OF_TUPLE
    if _is_of_graphs(plan, value):
        return _OF_GRAPHS
    if taker := _library_given(plan, value) or _library_given_options(plan, value):
        return Objection("answer-goes-elsewhere", _TO_LIBRARY.format(taker))
    if isinstance(value, cst.Arg) and _is_passed_to_tests(plan, value, tested):
        return None
    reads = _reads(plan, value)
    is_tested = reads is not None and all(_is_tested(plan, each, tested) for each in reads)
    return None if is_tested else _ELSEWHERE


def _is_of_gpus(plan: Plan, value: cst.CSTNode) -> bool:
    """Return whether an answer is what ``is_gpu_available()`` or ``can_use_cuda_iobinding()`` returns.

    Their callers may name "gpu" to a library, or use what is CUDA's.
    """
    function = next((each for each in plan.view.ancestors(value) if isinstance(each, cst.FunctionDef)), None)
    return function is not None and _OF_GPU.search(function.name.value.lower()) is not None


def _is_unpacked(plan: Plan, value: cst.Element) -> bool:
    """Return whether an answer is stored with other values: ``heads, is_cuda = q.shape[1], q.is_cuda``."""
    listed = plan.view.parent(value)
    around = plan.view.parent(listed) if isinstance(listed, cst.Tuple) else None
    return isinstance(around, cst.Assign) and isinstance(around.targets[0].target, cst.Tuple | cst.List)


def _is_of_graphs(plan: Plan, value: cst.CSTNode | None) -> bool:
    """Return whether an answer, by its name, becomes a value that says whether to use CUDA's graphs."""
    target = value.targets[0].target if isinstance(value, cst.Assign) and len(value.targets) == 1 else None
    uses = plan.view.uses(target) if target is not None else None
    for node in [value, *(uses or ())]:
        for around in (node, *plan.view.ancestors(node)) if node is not None else ():
            if isinstance(around, cst.Assign):
                if any(_GRAPHS.search(dotted(each.target) or "") for each in around.targets):
                    return True
                break
            if isinstance(around, cst.Arg) and around.keyword is not None and _GRAPHS.search(around.keyword.value):
                return True
            if isinstance(around, cst.BaseStatement):
                break
    return False


def _is_only_asserted(plan: Plan, function: cst.Lambda) -> bool:
    """Return whether ``check = lambda x: x.is_cuda`` is used in nothing but assertions, which guard kernels."""
    around = plan.view.parent(function)
    target = around.targets[0].target if isinstance(around, cst.Assign) and len(around.targets) == 1 else None
    uses = plan.view.uses(target) if target is not None else None
    return bool(uses) and all(
        any(isinstance(each, cst.Assert) for each in plan.view.ancestors(use)) for use in uses or ()
    )


def _library_given(plan: Plan, value: cst.CSTNode | None) -> str:
    """Return the function of another library that takes an answer, directly or by the answer's name; else ''."""
    name = answer_name(plan.view, value).rpartition(".")[2]
    for call in plan.view.of(cst.Call):
        called = dotted(call.func) or ""
        is_own = called.rpartition(".")[2] in plan.project.of_cudas_library
        is_library = is_own or is_foreign(plan.view, call.func) or _CUDAS.search(called) is not None
        if is_library or _may_be_library(plan, call.func):
            given = [each for each in call.args if each is value or (name and name in _names_read(plan, each))]
            is_default = isinstance(value, cst.Arg) and value in call.args and dotted(call.func) is not None
            is_declared = is_default and (dotted(call.func) or "").endswith("add_argument")
            if not is_library:
                given = [each for each in given if each.keyword is not None and _NAMES_CUDA.search(each.keyword.value)]
            if given and not is_declared and not all(is_option_given(each) for each in given):
                return dotted(call.func) or "a library"
    return ""


def of_constants(plan: Plan, regions: list[cst.CSTNode]) -> Objection | None:
    """Return an objection if code sets a name to a constant that a library takes as an option: ``gpu = True``, ``f(gpu=gpu)``."""
    for assign in (each for region in regions for each in plan.view.inside(region, cst.Assign)):
        value, target = assign.value, assign.targets[0].target
        if not isinstance(value, cst.Integer) and not (isinstance(value, cst.Name) and value.value in TRUTH):
            continue
        for use in plan.view.uses(target) or ():
            argument = plan.view.parent(use)
            call = (
                plan.view.parent(argument) if isinstance(argument, cst.Arg) and argument.keyword is not None else None
            )
            if not isinstance(call, cst.Call) or not isinstance(argument, cst.Arg) or argument.keyword is None:
                continue
            if _NAMES_CUDA.search(argument.keyword.value) and _may_be_library(plan, call.func):
                taker = dotted(call.func) or "a library"
                return Objection("answer-goes-elsewhere", _TO_LIBRARY.format(taker))
    return None


def _library_given_options(plan: Plan, value: cst.CSTNode | None) -> str:
    """Return the function that takes an answer as an option that names CUDA: ``options["use_cuda"] = …``, ``f(options)``."""
    target = value.targets[0].target if isinstance(value, cst.Assign) else None
    key: cst.CSTNode | None = None
    options: cst.BaseExpression | None = None
    if isinstance(target, cst.Subscript):
        key, options = target.slice[0], target.value
    if isinstance(value, cst.DictElement):
        key, made = value.key, plan.view.parent(plan.view.parent(value) or value)
        options = made.targets[0].target if isinstance(made, cst.Assign) else None
    name = dotted(options) if options is not None else None
    if key is None or name is None or not _NAMES_CUDA.search(plan.view.code(key)):
        return ""
    function = plan.view.function_around(key)
    near = [each for each in plan.view.of(cst.Call) if "." in name or plan.view.function_around(each) is function]
    taking = (call for call in near for each in call.args if dotted(each.value) == name)
    return next((dotted(call.func) or "a library" for call in taking if _may_be_library(plan, call.func)), "")


def _may_be_library(plan: Plan, function: cst.BaseExpression) -> bool:
    """Return whether a function may mean CUDA by ``use_cuda=``: the profiler does, and one that is not known may.

    Known are the others of torch, those of the standard library, and those that are defined in this file.
    """
    full_name = plan.view.name(function)
    if full_name == "torch.autograd.profiler.profile":
        return True
    called = (dotted(function) or "").rpartition(".")[2]
    functions = {each.name.value for each in plan.view.of(cst.FunctionDef, cst.ClassDef)}
    root = full_name.partition(".")[0]
    is_builtin = isinstance(function, cst.Name) and hasattr(builtins, called)
    is_builtin &= called != "dict"  # a library may get that
    return root != "torch" and root not in sys.stdlib_module_names and called not in functions and not is_builtin


def _names_read(plan: Plan, argument: cst.Arg) -> set[str]:
    found = set()
    for each in plan.view.inside(argument.value, cst.Name, cst.Attribute):
        around = plan.view.parent(each)
        is_part = isinstance(around, cst.Attribute) and around.attr is each
        if not is_part and not plan.view.name(each):
            found.add((dotted(each) or "").rpartition(".")[2])
    return found


def _reads(plan: Plan, value: cst.CSTNode | None) -> list[cst.CSTNode] | None:
    """Return every read of the name that an answer is stored under; None if other files may read it, or it has none."""
    name = answer_name(plan.view, value).rpartition(".")
    if not name[2]:
        return None
    target = value.targets[0].target if isinstance(value, cst.Assign) else getattr(value, "target", None)
    if isinstance(target, cst.Name):
        is_global = not any(isinstance(each, cst.FunctionDef | cst.Lambda) for each in plan.view.ancestors(target))
        is_shared = is_global and name[2] in plan.project.brought
        uses = None if is_shared else plan.view.uses(target)
        return None if is_global and not uses else uses
    if plan.project.attributes.get(name[2], 0) > 1 or (isinstance(target, cst.Attribute) and not _is_plain(target)):
        return None
    found = [each for each in plan.view.of(cst.Attribute) if each.attr.value == name[2]]
    return [each for each in found if not _is_other(plan, each)] or None


def _is_other(plan: Plan, node: cst.Attribute) -> bool:
    """Return whether an attribute of the answer's name is assigned, or is torch's: ``torch.cuda``, ``x.cuda()``."""
    around = plan.view.parent(node)
    if plan.view.name(node):
        return True
    return isinstance(around, cst.AssignTarget) or (isinstance(around, cst.Call) and around.func is node)


def _is_plain(target: cst.Attribute) -> bool:
    """Return whether a target is ``self.name`` or ``args.name``, and not, say, the attribute of a module."""
    root = (dotted(target.value) or "").rpartition(".")[2].lower()
    return root in ("self", "args", "opt", "opts", "options", "config", "cfg", "hparams", "params", "flags", "parser")


def _is_tested(plan: Plan, read: cst.CSTNode, tested: list[cst.CSTNode]) -> bool:
    if any(plan.view.is_within(read, each) for each in tested) or is_option(plan.view, read):
        return True
    return _is_passed_to_tests(plan, plan.view.parent(read), tested)


def _is_passed_to_tests(plan: Plan, argument: cst.CSTNode | None, tested: list[cst.CSTNode]) -> bool:
    """Return whether an argument goes to a function of this file that only tests the parameter."""
    parameter = parameter_given(plan.view, argument)
    reads = plan.view.uses(parameter.name) if parameter is not None else None
    return reads is not None and all(
        any(plan.view.is_within(read, each) for each in tested) or is_option(plan.view, read) for read in reads
    )
