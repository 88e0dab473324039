"""Finds code that is specific to CUDA and stays as it is.

This is: a class that implements CUDA for a device layer, alone or next to classes for other devices; the parameters and
body of a method called ``cuda()``; code that uses TensorRT or CuPy; a module that compiles CUDA sources when it is imported;
CUDA's branch in a program that names other accelerators; a branch for a version of torch without ``torch.amp``; a test
that is skipped without CUDA, or that replaces functions of torch.cuda; and a configuration file of mmengine, which
reads such files without calling the functions that they import.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .beside_others import HARMLESS, OTHERS, does_again
from .nodes import library_of
from .regions import following, leaves
from .source_view import dotted, text_of

if TYPE_CHECKING:
    from .source_view import SourceView

__all__ = ["regions_that_stay"]

_VENDORS = ("tensorrt", "torch_tensorrt", "torch2trt", "pycuda", "cupy", "cupyx", "safe_gpu")
_OF_CLASS = "{} implements CUDA for a device layer of its own, which has other classes for other devices"
_OF_SIBLING = "{} is CUDA's class beside those of other devices"
_NO_BASES = {"", "ABC", "Generic", "Protocol", "object"}
_OF_ANSWER = "{} is named after CUDA, and says whether it is available"
_OF_METHOD = "part of a method called cuda()"
_OF_LADDER = "CUDA's branch of a question that has one for another accelerator by name, too"
_LIBRARY_OF_OTHERS = re.compile(
    r"\bimport (torch_npu|torch_mlu|torch_musa|habana_frameworks|intel_extension_for_pytorch)\b"
)
_MORE_THAN_MPS = re.compile(
    r"\bmps\.is_available\(\)\s+and\s+(?!torch\.backends\.mps\.is_built)|\b\w+\s+and\s+(has_mps|mps_(is_)?available)\b"
)
_OF_TWICE = "a question beside one for another accelerator by name: a device must not do both"
_OF_APPLES = "the other branch is for Apple's GPUs, as its comment says"
_COMMENT_ON_APPLES = re.compile(r"#[^\n]*\b(MPS|mps|Apple|Metal)\b")
_CUDA = re.compile(r"cuda", re.IGNORECASE)
_OF_OLD_TORCH = "for versions of torch without torch.amp; the code for newer ones is rewritten"
_ASKS_VERSION = re.compile(r"version|hasattr\(|torch_?[\w.]*(ge|gt|lt|le|\d)\b", re.IGNORECASE)
_NEW_AMP = re.compile(r"\btorch\.(amp\b|autocast\(|GradScaler\()")
_OF_VENDOR = "part of code that uses {}, which runs on CUDA only"
_OF_KERNELS = "in a module that compiles CUDA sources when it is imported"
_COMPILES = ("torch.utils.cpp_extension.load", "torch.utils.cpp_extension.load_inline")
_CUDA_SOURCES = re.compile(r"\.cu[\"']|\bcuda_sources\s*=")
_OF_FRAMEWORK = "code for {}, in a module that does not import torch"
_FRAMEWORKS = (
    *("paddle", "dragon", "jittor", "mindspore", "oneflow", "tensorflow", "mxnet", "jax", "cupy"),
    *("onnxruntime", "ctranslate2", "faster_whisper"),
)
_OF_SKIPPED = "part of a test that is skipped without CUDA"
_OF_REPLACED = "part of a test that replaces functions of torch.cuda"
_OF_CONFIGURATION = "mmengine reads this configuration without calling functions; its program can set another value"
_OF_SHIM = "makes torch.cuda's functions work on another device"
_OF_MODULE = re.compile(
    r"self\.\w+\.cuda\.(device_count|set_device|current_device|synchronize|empty_cache|[Ss]tream|current_stream|Event|device)$"
)
_SETS = re.compile(r"^\s*torch\.cuda\.(\w+) = ", re.MULTILINE)
_OTHERS_EXTENSION = re.compile(
    r"^\s*(import|from) (intel_extension_for_pytorch|torch_(npu|mlu|musa|directml)|habana_frameworks)\b", re.MULTILINE
)
_REPLACES = re.compile(r"""\bpatch(\.object)?\(\s*["']?(?:[\w.]+\.)?torch\.cuda\b|\bsetattr\(\s*["']?torch\.cuda\b""")
_SKIPS = re.compile(r"skip|requires?(_|[A-Z]|$)")
_MISSING = re.compile(r"not torch\.cuda\.is_available\(\)$|torch\.cuda\.device_count\(\) (<|==) \d+$")
_SKIP = re.compile(r"\b(skip|skipTest|SkipTest)\(")
_NEEDS_CUDA = re.compile(r"cuda|gpu|nccl", re.IGNORECASE)
_CONFIGURES = re.compile(r"\bmmengine\b|\bread_base\(|^(_base_|default_hooks|env_cfg|dist_params)\b", re.MULTILINE)


def regions_that_stay(view: SourceView) -> dict[cst.CSTNode, str]:
    """Return the classes and blocks that are specific to CUDA, with the reason.

    A class is included if at least two of its methods call the ``torch.cuda`` function of the same name: its callers
    expect CUDA's result. ``CUDAAccelerator`` is included if the project has classes like it for two other devices, for
    example ``CPUAccelerator`` and ``MPSAccelerator``. If a library that supports only CUDA is used, the innermost
    branch or function around the use is included.
    """
    found: dict[cst.CSTNode, str] = {}
    methods: dict[cst.CSTNode, set[str]] = {}
    for node, name in view.imported.items():
        if name.startswith("torch.cuda."):
            function = next((each for each in view.ancestors(node) if isinstance(each, cst.FunctionDef)), None)
            owner = _class_of(view, function) if function is not None else None
            if function is not None and owner is not None and function.name.value == name.rpartition(".")[2]:
                methods.setdefault(owner, set()).add(function.name.value)
        elif name.partition(".")[0] in _VENDORS:
            block = _block_of(view, node)
            if block is not None:
                found[block] = _OF_VENDOR.format(name.partition(".")[0])
        elif name in _COMPILES and _compiles_at_import(view, node):
            found[view.module] = _OF_KERNELS
    found |= _by_imports(view)
    for owner in view.of(cst.ClassDef):
        if len(_asked_of_module(view, owner)) > 2:
            found[owner] = _OF_CLASS.format(owner.name.value)
        if owner.name.value[:4] in ("CUDA", "Cuda") and (reason := _of_layer(view, owner)):
            found[owner] = reason.format(owner.name.value)
    for function in view.of(cst.FunctionDef):
        if function.name.value == "cuda" and _class_of(view, function) is not None:
            found |= dict.fromkeys((function.params, function.body), _OF_METHOD)
    for tested in view.of(cst.FunctionDef, cst.ClassDef):
        is_skipped = isinstance(tested, cst.FunctionDef) and any(_is_skip(view, each) for each in tested.body.body)
        if is_skipped or any(_skips(view, each) for each in tested.decorators):
            found[tested.body] = _OF_SKIPPED
        if isinstance(tested, cst.FunctionDef) and _REPLACES.search(view.code(tested)):
            found[tested.body] = _OF_REPLACED
    found |= _by_questions(view)
    if _CONFIGURES.search(view.source) and all(_only_sets(each) for each in view.module.body):
        found[view.module] = _OF_CONFIGURATION
    if len(set(_SETS.findall(view.source))) > (0 if _OTHERS_EXTENSION.search(view.source) else 3):
        found[view.module] = _OF_SHIM
    if ".cuda.amp" in view.source:
        found |= dict.fromkeys(_branches_for_old_torch(view), _OF_OLD_TORCH)
    for owner, names in methods.items():
        if isinstance(owner, cst.ClassDef) and len(names) > 1:
            found[owner] = _OF_CLASS.format(owner.name.value)
        elif isinstance(owner, cst.ClassDef) and names == {"is_available"} and _is_one_of_several(view, owner):
            found[owner] = _OF_ANSWER.format(owner.name.value)
    return found


def _by_questions(view: SourceView) -> dict[cst.CSTNode, str]:
    """Return the questions for CUDA, with their branches, that stand beside questions for other accelerators."""
    found: dict[cst.CSTNode, str] = {}
    for test in view.of(cst.If):
        found |= dict.fromkeys(_branches_of_cuda(view, test), _OF_LADDER)
        if does_again(view, test):
            found |= dict.fromkeys((test.test, test.body), _OF_TWICE)
        if _is_beside_apples(view, test):
            found |= dict.fromkeys((test.test, test.body), _OF_APPLES)
    return found


def _by_imports(view: SourceView) -> dict[cst.CSTNode, str]:
    """Return what another framework, or a library that supports only CUDA, is imported for."""
    found: dict[cst.CSTNode, str] = {}
    is_of_torch = any(full.partition(".")[0] == "torch" for full in view.imported.values())
    for statement in view.of(cst.Import, cst.ImportFrom):
        library = library_of(statement)
        if library in _FRAMEWORKS and not is_of_torch:
            found[view.module] = _OF_FRAMEWORK.format(library)
        block = _block_needing(view, statement) if library in _VENDORS else None
        if block is not None:
            found[block] = _OF_VENDOR.format(library)
    return found


def _of_layer(view: SourceView, owner: cst.ClassDef) -> str:
    """Return why a class that is named after CUDA is one of a device layer's: by its siblings, or by ``name = "cuda"``; or ''."""
    if owner.name.value[4:] in view.project.siblings:
        return _OF_SIBLING
    is_told = isinstance(owner.body, cst.IndentedBlock) and any(map(_names_cuda, owner.body.body))
    return _OF_CLASS if owner.bases and is_told else ""


def _is_one_of_several(view: SourceView, owner: cst.ClassDef) -> bool:
    """Return whether a class is CUDA's, beside others of which a program takes one that answers that it is available."""
    others = [each for each in view.of(cst.ClassDef) if each is not owner]
    asked = [one for each in others for one in each.body.body if isinstance(one, cst.FunctionDef)]
    answers = [each for each in asked if each.name.value == "is_available"]
    is_abstract = [any("abstract" in view.code(one) for one in each.decorators) for each in answers]
    here = {each.name.value for each in others} | _NO_BASES
    is_from_elsewhere = any((dotted(each.value) or "").rpartition(".")[2] not in here for each in owner.bases)
    return owner.name.value[:4] in ("CUDA", "Cuda") and (is_from_elsewhere or not all(is_abstract))


def _asked_of_module(view: SourceView, owner: cst.ClassDef) -> set[str]:
    """Return the functions of torch.cuda that a class calls on a module that it is given: ``self.module.cuda.Stream()``."""
    called = [each.func for each in view.inside(owner, cst.Call) if not view.name(each.func)]
    found = (_OF_MODULE.match(dotted(each) or "") for each in called)
    return {each[1] for each in found if each is not None}


def _names_cuda(statement: cst.CSTNode) -> bool:
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    return isinstance(small, cst.Assign | cst.AnnAssign) and small.value is not None and text_of(small.value) == "cuda"


def _branches_of_cuda(view: SourceView, first: cst.If) -> list[cst.CSTNode]:
    """Return CUDA's tests and branches in an ``if`` chain that also tests for another accelerator by name.

    A chain is also what several ``if`` statements after each other are, if all but the last return or raise; a last
    ``try`` may import the library for another accelerator. Each machine takes its own branch, so all branches are
    correct as they are. The final ``else`` is returned if no test is for CUDA and the CUDA calls in the ``else`` have
    no effect without CUDA. MPS does not count: code that tests for it means "CUDA, else Apple's GPU, else the CPU",
    which is a choice of device. It counts if it is not used everywhere that it is available: the accelerator's name
    would be "mps" there too.
    """
    if isinstance(view.parent(first), cst.If) or _leaves_before(view, first):
        return []
    tests = [first]
    while isinstance(further := tests[-1].orelse or _next(view, tests[-1]), cst.If):
        tests.append(further)
    asked = {each: view.code(each.test) for each in tests}
    others = [code for each, code in asked.items() if OTHERS.search(code) or _is_more_than_mps(each, code)]
    if isinstance(further, cst.Try | cst.Else) and (imported := _LIBRARY_OF_OTHERS.search(view.code(further))):
        others.append(imported[0])
    if not any(not _CUDA.search(code) for code in others):
        return []
    of_cuda = [each for each in tests if _CUDA.search(asked[each]) and not OTHERS.search(asked[each])]
    last = tests[-1].orelse
    if not of_cuda and isinstance(last, cst.Else) and not _CUDA.search(HARMLESS.sub("", view.code(last))):
        return [last.body]
    return [part for each in of_cuda for part in (each.test, each.body)]


def _is_beside_apples(view: SourceView, test: cst.If) -> bool:
    """Return whether a question for CUDA has an ``else`` that no code, but a comment, reserves for Apple's GPUs."""
    last = test.orelse
    if not isinstance(last, cst.Else) or "cuda" not in view.code(test.test):
        return False
    code = view.code(last)
    return _COMMENT_ON_APPLES.search(code) is not None and "cuda" not in code.lower()


def _is_more_than_mps(test: cst.If, asked: str) -> bool:
    """Return whether Apple's GPU is used under further conditions only: ``mps.is_available() and …``, or another ``if``."""
    nested = [each.test for each in test.body.body if isinstance(each, cst.If)]
    is_nested = not all(map(_asks_for_build, nested))
    return _MORE_THAN_MPS.search(asked) is not None or (is_nested and "mps.is_available()" in asked)


def _asks_for_build(test: cst.BaseExpression) -> bool:
    """Return whether a test is ``not torch.backends.mps.is_built()``, which is true where Apple's GPU is available."""
    call = test.expression if isinstance(test, cst.UnaryOperation) else test
    return isinstance(call, cst.Call) and (dotted(call.func) or "").endswith("mps.is_built")


def _next(view: SourceView, test: cst.If) -> cst.CSTNode | None:
    """Return the statement after an ``if`` whose body leaves the block, so that what follows is its ``else``."""
    return next(iter(following(view, test)), None) if leaves(view, test.body) else None


def _leaves_before(view: SourceView, test: cst.If) -> bool:
    """Return whether the statement before an ``if`` is another one that leaves the block."""
    block = view.parent(test)
    body = list(block.body) if isinstance(block, cst.IndentedBlock | cst.Module) else []
    before = body[body.index(test) - 1] if test in body[1:] else None
    return isinstance(before, cst.If) and before.orelse is None and leaves(view, before.body)


def _skips(view: SourceView, decorator: cst.Decorator) -> bool:
    """Return whether a decorator skips a test on a machine without CUDA, by its message, or else by its name or test."""
    given = decorator.decorator
    stored = view.values_of(given) if isinstance(given, cst.Name) else []
    return any(_is_mark(view, each) for each in (given, *stored))


def _is_mark(view: SourceView, given: cst.BaseExpression) -> bool:
    name = dotted(given.func if isinstance(given, cst.Call) else given) or ""
    told = given.args[1:] if isinstance(given, cst.Call) else ()
    says = " ".join(view.code(each) for each in told) or view.code(given)
    return _SKIPS.search(name.rpartition(".")[2]) is not None and _NEEDS_CUDA.search(says) is not None


def _is_skip(view: SourceView, statement: cst.CSTNode) -> bool:
    """Return whether a statement skips a test on a machine without CUDA: ``if not torch.cuda.is_available(): pytest.skip(…)``."""
    if not isinstance(statement, cst.If) or statement.orelse is not None or len(statement.body.body) != 1:
        return False
    skips, asked = view.code(statement.body), view.code(statement.test)
    is_asked = _MISSING.match(asked) is not None
    return is_asked and _SKIP.search(skips) is not None and _NEEDS_CUDA.search(skips) is not None


def _only_sets(statement: cst.CSTNode) -> bool:
    """Return whether a statement only imports and assigns, as all statements of a configuration file do."""
    if isinstance(statement, cst.With):
        return dotted(getattr(statement.items[0].item, "func", statement)) == "read_base"
    small = statement.body if isinstance(statement, cst.SimpleStatementLine) else [statement]
    kinds = (cst.Import, cst.ImportFrom, cst.Assign)
    return all(isinstance(each, kinds) or isinstance(getattr(each, "value", None), cst.SimpleString) for each in small)


def _branches_for_old_torch(view: SourceView) -> list[cst.CSTNode]:
    """Return the branches for an old torch: the alternatives to ``torch.amp`` under a version test or in a ``try``."""
    found: list[cst.CSTNode] = []
    for test in view.of(cst.If, cst.IfExp):
        other = test.orelse.body if isinstance(test.orelse, cst.Else) else test.orelse
        rest = [] if other is not None else _following(view, test)
        branches = [test.body, *([other] if other is not None else rest)]
        if _ASKS_VERSION.search(view.code(test.test)):
            news = [each for each in branches if _NEW_AMP.search(view.code(each))]
            found += [each for each in branches if news and each not in news]
    for attempt in view.of(cst.Try):
        if _NEW_AMP.search(view.code(attempt.body)):
            found += [each.body for each in attempt.handlers]
    return found


def _following(view: SourceView, test: cst.CSTNode) -> list[cst.CSTNode]:
    """Return the statements after a test in its block, if the body of the test leaves the block; otherwise none."""
    return [] if not isinstance(test, cst.If) or not leaves(view, test.body) else following(view, test)


def _class_of(view: SourceView, function: cst.FunctionDef) -> cst.CSTNode | None:
    owner = view.parent(view.parent(function) or function)
    return owner if isinstance(owner, cst.ClassDef) else None


def _compiles_at_import(view: SourceView, node: cst.CSTNode) -> bool:
    """Return whether a call compiles CUDA sources whenever its module is imported: without CUDA's compiler that fails."""
    around = list(view.ancestors(node))
    call = next((each for each in around if isinstance(each, cst.Call)), None)
    is_optional = any(isinstance(each, cst.FunctionDef | cst.Lambda | cst.If | cst.Try) for each in around)
    return call is not None and not is_optional and _CUDA_SOURCES.search(view.code(call)) is not None


def _block_needing(view: SourceView, statement: cst.CSTNode) -> cst.CSTNode | None:
    """Return what cannot run without an import: a branch, a function, or the module, unless it goes on without it."""
    block = _block_of(view, statement)
    tries = [each for each in view.ancestors(statement) if isinstance(each, cst.Try)]
    handlers = [handler for each in tries for handler in each.handlers]
    is_needed = all(any(True for _ in view.inside(handler, cst.Raise)) for handler in handlers)
    return block or (view.module if is_needed else None)


def _block_of(view: SourceView, node: cst.CSTNode) -> cst.CSTNode | None:
    """Return the innermost branch or function around a node; None at module level, which has unrelated code too."""
    for around in view.ancestors(node):
        if isinstance(around, cst.FunctionDef):
            return around
        if isinstance(around, cst.BaseSuite) and isinstance(view.parent(around), cst.If | cst.Else):
            return around
    return None
