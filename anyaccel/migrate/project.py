"""Facts that the files of a migration share: classes that define their own ``cuda``, and parameter names."""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeGuard

from .handed_on import names_handed_on

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Project", "survey"]

_CLASS = re.compile(r"^[ \t]*class[ \t]+(\w+)[ \t]*\(([^)]*)\)", re.MULTILINE)
_NAME = re.compile(r"\w+")
_INTERESTING = re.compile(
    r"def (?:cuda|pin_memory|is_cuda)\(|^[ \t]+(?:self\.)?is_cuda ?(?::|=(?!=))|\((?:\w+\.)*\w*Module\)\s*:",
    re.MULTILINE,
)
_AMP = {"autocast", "GradScaler"}
_METHODS = ("cuda", "pin_memory", "is_cuda")
_TOLD = re.compile(r"def \w+\((?:[^()]|\([^()]*\))*?\b\w*(?:device|backend)\b")
_SCRIPTED = re.compile(r"\bjit\.(is_scripting\(|_overload\b|script_if_tracing\b)")
_REFUSES = re.compile(r"""raise \w+\(\s*f?"[^"\n]*\bdevice\b[^"\n]*'cpu'[^"\n]*'cuda'(?![^"\n]*'(?:xpu|npu|mps)')""")
_GIVEN_TO_SCRIPT = re.compile(r"\bjit\.script\(\s*(?:[a-z]\w*\.)*(\w+)\s*[,)]")
_SCRIPTABLE = re.compile(r'^def (\w+)\([^)]*\)[^:]*:\s+r?"""(?:(?!""").)*\bscriptable\b', re.MULTILINE | re.DOTALL)
_LISTS = re.compile(r"\bdevice(_type|\.type)? (not )?in [\[({][^\])}]*[\"']cuda[\"']|Literal\[[^\]]*[\"']cuda[\"']")
_SETTING = re.compile(
    r"""--(\w*device\w*)\b"""
    r"""|(?:["'](\w*device\w*)["']\]?|^[ \t]*(\w*device\w*) ?:[^=\n]+=|(?<!self)\.(\w*device\w*) ?=)"""
    r""" ?:? ?=? ?["'](?:cuda|auto|cpu)""",
    re.MULTILINE,
)
_OF_AMP = re.compile(r"^[ \t]*from torch(?:\.amp)? import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_LIBRARIES = re.compile(r"^[ \t]*(?:import|from)[ \t]+(torch|dgl)\b", re.MULTILINE)
_TO_CUDAS = re.compile(r"^[ \t]*(?:import|from)[ \t]+(?:faiss|cupy|GPUtil|pynvml)\b", re.MULTILINE)
_DEVICES = re.compile(r"^[ \t]*(?:import|from)[ \t]+(?:faiss|cupy|dgl|dgllife|astra|ctranslate2)\b", re.MULTILINE)
_TAKES_GPU = re.compile(r"^def (\w+)\((?:[^()]|\([^()]*\))*?\b\w*(?:gpu|cuda)", re.MULTILINE)
_DDP = {"DistributedDataParallel", "DDP"}
_COMPARED = re.compile(r"(\w*(?:gpu|device|cuda)\w*)[\"'\])]* *(?:(?:[=!]=|<=?|>) *0|(?:<|>=) *1)\b")
_TESTED = re.compile(
    r"\b(?:if|elif|while|and|or|not) +(?:\w+\.)*(\w*(?:gpu|device|cuda)\w*)(?= *(?::|\)|and\b|or\b|else\b|$))",
    re.MULTILINE,
)
_ATTRIBUTE = re.compile(r"(?<!torch)\.(\w*(?:cuda|gpu)\w*)\b(?! *[.(])", re.IGNORECASE)
_BROUGHT = re.compile(
    r"^[ \t]*from [\w.]+ import ([^(\n]*(?:cuda|gpu)[^(\n]*|\([^)]*(?:cuda|gpu)[^)]*\))", re.MULTILINE | re.IGNORECASE
)
_DEFINED = re.compile(r"^(?:async )?(?:def|class)[ \t]+(\w+)", re.MULTILINE)
_BY_TYPE = re.compile(
    r"""^(\s*)(?:el)?if [^\n]{0,80}\b(?:device|dev)(?:\.type)? [=!]= (?:torch\.device\()?["'](?:cuda|cpu)["']"""
)
_EXPECTED = re.compile(r"""(?:match=|assertRaisesRegex\([^,]+,)\s*[rf]*["'][^"'\n]*\bcuda\b""", re.IGNORECASE)
_ASKED = re.compile(r"torch\.cuda\.(is_|device_count)|\.is_cuda\b|[\"']cuda")
_FUNCTION = re.compile(r"def (\w+)")
_KEPT = re.compile(r"""[\"'](?:--)?([\w-]+)[\"']\s*[:,]""")  # a key, or an option
_STORED = re.compile(r"(\w+)[\"']?\]?\s*(?::[^=\n]+)?=[^=]")
_STORED_AGAIN = re.compile(r"(?:=|return)\s*(?:not\s+)?[\w.]+\s*$")
_OTHER_WAY = re.compile(r"(else|elif)\b")
_CLASSES_OF_CUDA = re.compile(r"\b(_?(?:CUDA|Cuda)[A-Z]\w*)(?<!Timer)(?<!Profiler)\(")
_BINDS = re.compile(r"\bdevice_type\s*=\s*[\w.]*\bdevice\.type\b")
_OTHERS_FIRST = re.compile(r"^(CPU|XPU|MPS|NPU|HPU|MLU|TPU|XLA|Cpu|Xpu|Mps|Npu|Hpu|Mlu|Tpu|Xla)(?=[A-Z])")


@dataclass
class Project:
    """Facts collected from all files together.

    Attributes:
        own_method: by method or property (``"cuda"``, ``"pin_memory"``, ``"is_cuda"``), the classes
            that define it; a call may mean theirs.
        takes_argument: those of them whose method cannot be called without an argument, by method.
        modules: the classes that are torch modules, judged by their base class.
        parameters: the parameter names, by function name (the class name for ``__init__``) and then by module.
        siblings: class name suffixes that follow the names of at least two devices other than CUDA: ``Accelerator`` for
            ``CPUAccelerator`` and ``MPSAccelerator``.
        ddps: the classes that derive from DistributedDataParallel.
        attributes: how many files read or set an attribute that is named after CUDA or a GPU, by name.
        brought: the names of that kind that some file imports from another.
        compared_with_0: the names of device counts that some file compares with 0, or asks to be less than 1.
        packages: the names by which the run's own packages and modules are imported.
        is_scripted: whether some file is written for TorchScript, which also compiles what it calls in other files.
        scripted: the names that some file gives to ``torch.jit.script``.
        passes_on: the modules that import torch.amp's ``GradScaler`` or ``autocast``, by name; others may get it from them.
        handed_on: the names that some file imports from ``torch.cuda``, and others from that file.
        scriptable: the functions whose docstrings say that TorchScript compiles them, and so what calls them.
        is_of_dgl: whether most files that import torch import dgl, too.
        of_cudas_library: the functions with a parameter about a GPU in files that import a library for CUDA, such as faiss.
        chosen_by_device: what some file chooses by a device's type, and no other device has: a class with a twin for the
            CPU, and the memory that onnxruntime is bound to.
        bases_of_cudas: the classes from which others derive that give ``self.device`` to a library for CUDA.
        refuses_others: whether some file raises an error that names the CPU and CUDA as the devices that are allowed.
        settings: the options, parameters and settings for a device that some file defines, by name.
        answers: the names under which some file may store or return the answer to a question about CUDA.
        kept_elsewhere: the names of answers that another file tests before code that stays CUDA's, each with that place; known
            only after a first run over all files.
        makes_scalers: whether some file makes a ``GradScaler``.
        expects_errors: whether some test expects an error by a text that names CUDA.
        lists_devices: the functions and classes whose device parameter must be one of some listed types.
    """

    own_method: dict[str, set[str]] = field(default_factory=lambda: {name: set() for name in _METHODS})
    takes_argument: dict[str, set[str]] = field(default_factory=lambda: {name: set() for name in _METHODS})
    modules: set[str] = field(default_factory=set)
    parameters: dict[str, dict[str, set[tuple[str, ...]]]] = field(default_factory=dict)
    siblings: set[str] = field(default_factory=set)
    compared_with_0: set[str] = field(default_factory=set)
    ddps: set[str] = field(default_factory=set)
    attributes: Counter[str] = field(default_factory=Counter)
    brought: set[str] = field(default_factory=set)
    packages: set[str] = field(default_factory=set)
    is_scripted: bool = False
    scripted: set[str] = field(default_factory=set)
    passes_on: dict[str, set[str]] = field(default_factory=lambda: {name: set() for name in _AMP})
    handed_on: set[str] = field(default_factory=set)
    scriptable: set[str] = field(default_factory=set)
    is_of_dgl: bool = False
    of_cudas_library: set[str] = field(default_factory=set)
    chosen_by_device: set[str] = field(default_factory=set)
    bases_of_cudas: set[str] = field(default_factory=set)
    refuses_others: bool = False
    settings: set[str] = field(default_factory=set)
    lists_devices: set[str] = field(default_factory=set)
    makes_scalers: bool = False
    expects_errors: bool = False
    answers: set[str] = field(default_factory=set)
    kept_elsewhere: dict[str, str] = field(default_factory=dict)

    def parameter(self, function: str, full_name: str, place: int) -> str:
        """Return the name of a function's positional parameter; empty if its definitions differ or none is known.

        Args:
            function: the function's name in its definition.
            full_name: the same name with the module that it is imported from, if known.
            place: the parameter's position, from 0.
        """
        by_module = self.parameters.get(function, {})
        module = full_name.removesuffix(f".{function}").rpartition(".")[2] if full_name else ""
        known = by_module.get(module) or set().union(*by_module.values())
        found = {each[place] if place < len(each) else "" for each in known}
        return found.pop() if len(found) == 1 else ""


def survey(sources: Iterable[tuple[str, str]]) -> Project:
    """Collect the facts from some modules; definitions in a module that cannot be parsed are skipped.

    Args:
        sources: the name of each module, without its package, and its source.
    """
    project = Project()
    texts = list(sources)
    libraries = [set(_LIBRARIES.findall(source)) for _, source in texts]
    project.is_of_dgl = 2 * libraries.count({"torch", "dgl"}) > sum("torch" in each for each in libraries)
    for module, source in texts:
        project.attributes.update(set(_ATTRIBUTE.findall(source)))
        project.brought.update(name for names in _BROUGHT.findall(source) for name in _NAME.findall(names))
        project.compared_with_0.update(_COMPARED.findall(source), _TESTED.findall(source))
        if "device" in source:
            project.settings.update(name for found in _SETTING.findall(source) for name in found)
        for names in _OF_AMP.findall(source) if "torch" in source else ():
            for name in set(_NAME.findall(names)) & _AMP:
                project.passes_on[name].add(module)
        project.makes_scalers |= "GradScaler(" in source
        project.scripted.update(_GIVEN_TO_SCRIPT.findall(source))
        project.refuses_others |= _REFUSES.search(source) is not None
        project.answers |= _answers_in(source) if "cuda" in source else set()
        if "match=" in source or "assertRaisesRegex" in source:
            project.expects_errors |= _EXPECTED.search(source) is not None
        project.is_scripted |= _SCRIPTED.search(source) is not None
        project.of_cudas_library.update(_TAKES_GPU.findall(source) if _TO_CUDAS.search(source) else ())
        project.scriptable.update(_SCRIPTABLE.findall(source) if "scriptable" in source else ())
        project.chosen_by_device |= _chosen_by_device(source)
        if _INTERESTING.search(source) or _TOLD.search(source):
            _survey_one(module, source, project)
    project.handed_on = names_handed_on(texts)
    for name, modules in project.passes_on.items():
        modules -= {module for module, source in texts if f"class {name}" in source or f"def {name}(" in source}
    for module, source in texts:
        for name in _DEFINED.findall(source):
            if name in project.parameters:
                project.parameters[name].setdefault(module, {()})  # this definition takes no device
    _add_heirs(project, [source for _, source in texts])
    return project


def _add_heirs(project: Project, sources: list[str]) -> None:
    """Add the subclasses of classes with their own method; also find ``ddps``, ``siblings`` and ``bases_of_cudas``."""
    bases = {name: set(_NAME.findall(given)) for source in sources for name, given in _CLASS.findall(source)}
    project.ddps = {name for name, given in bases.items() if given & _DDP}
    rests = [_OTHERS_FIRST.sub("", name) for name in bases if _OTHERS_FIRST.match(name)]
    project.siblings = {rest for rest in rests if rests.count(rest) > 1}
    waiting = [
        base
        for source in sources
        if "self.device" in source and _DEVICES.search(source)
        for _, given in _CLASS.findall(source)
        for base in _NAME.findall(given)
    ]
    while waiting:
        base = waiting.pop()
        waiting += bases.get(base, set()) - project.bases_of_cudas
        project.bases_of_cudas.add(base)
    for owners in (*project.own_method.values(), *project.takes_argument.values()):
        while owners and (heirs := {name for name, given in bases.items() if given & owners} - owners):
            owners.update(heirs)


def _answers_in(source: str) -> set[str]:
    """Return the names under which lines that ask about CUDA store the answer, their other names, and the functions around."""
    asked = [_line_at(source, match.start()) for match in _ASKED.finditer(source)]
    stored = {name for line, _ in asked for name in _STORED.findall(line)}
    again: list[tuple[str, str]] = []
    place = 0
    for line in source.split("\n") if stored else ():
        last = line.rstrip().rpartition(" ")[2].rpartition("=")[2].rpartition(".")[2]
        if last in stored and _STORED_AGAIN.search(line):
            again.append(_line_at(source, place))
        place += len(line) + 1
    lines = [*asked, *again]
    named = (
        name.replace("-", "_") for line, _ in lines for pattern in (_STORED, _KEPT) for name in pattern.findall(line)
    )
    return {*named, *(function for _, function in lines)}


def _line_at(source: str, place: int) -> tuple[str, str]:
    """Return the line at a place, and the name of the function before it."""
    end = source.find("\n", place)
    line = source[source.rfind("\n", 0, place) + 1 : end if end != -1 else len(source)]
    function = _FUNCTION.match(source, max(source.rfind("def ", 0, place), 0))
    return line, function[1] if function else ""


def _chosen_by_device(source: str) -> set[str]:
    """Return the classes that an ``if`` for a type of device uses, and that have a twin for the CPU in another branch.

    ``if device.type == "cuda": CUDASampler(g)`` … ``else: CPUSampler(g)``. A list of onnxruntime's providers is not meant:
    its sessions for the CPU take arrays from every device, unless their memory is bound.
    """
    found = {"io_binding()"} if "io_binding" in source and _BINDS.search(source) else set()
    lines = source.splitlines() if "cuda" in source else []
    for place, line in enumerate(lines):
        test = _BY_TYPE.match(line) if "if " in line else None
        branches = _branches(lines[place + 1 :], len(test[1])) if test is not None else []
        for branch in branches:
            for name in _CLASSES_OF_CUDA.findall(branch):
                twin = name.replace("CUDA", "CPU", 1).replace("Cuda", "Cpu", 1)
                found |= {name for each in branches if f"{twin}(" in each}
    return found


def _branches(lines: list[str], indentation: int) -> list[str]:
    """Return the text of each branch of an ``if`` statement, of which the lines after its first are given."""
    found: list[list[str]] = [[]]
    for line in lines:
        text = line.lstrip()
        depth = len(line) - len(text)
        if text and depth <= indentation:
            if depth < indentation or not _OTHER_WAY.match(text):
                break
            found.append([])
        else:
            found[-1].append(line)
    return ["\n".join(each) for each in found]


def _survey_one(module: str, source: str, project: Project) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about the file itself, such as invalid escapes
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    lines = source.splitlines()
    for each in tree.body:
        if isinstance(each, ast.FunctionDef):
            _add_parameters(project, module, each.name, each.args, 0)
            _add_listing(project, each.name, each, lines)
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for inner in ("body", "orelse", "finalbody", "handlers", "cases"):  # no class is in an expression
            waiting += getattr(node, inner, ())
        if isinstance(node, ast.ClassDef):
            if any(ast.unparse(base).endswith("Module") for base in node.bases):
                project.modules.add(node.name)
            if any(_sets_is_cuda(each) for each in node.body):
                project.own_method["is_cuda"].add(node.name)
            for member in node.body:
                if isinstance(member, ast.FunctionDef) and member.name == "__init__":
                    _add_parameters(project, module, node.name, member.args, 1)
                if isinstance(member, ast.FunctionDef):
                    _add_listing(project, node.name, member, lines)
                if not isinstance(member, ast.FunctionDef) or member.name not in project.own_method:
                    continue
                needed = len(member.args.args) - len(member.args.defaults) - 1  # without self
                if needed <= 1:
                    (project.takes_argument if needed == 1 else project.own_method)[member.name].add(node.name)


def _sets_is_cuda(member: ast.stmt) -> bool:
    """Return whether a class has a field ``is_cuda``, or a method that sets ``self.is_cuda``."""
    is_method = isinstance(member, ast.FunctionDef)
    lines = (
        each for each in (ast.walk(member) if is_method else (member,)) if isinstance(each, ast.Assign | ast.AnnAssign)
    )
    targets = (target for line in lines for target in (line.targets if isinstance(line, ast.Assign) else [line.target]))
    return any(ast.unparse(each) == ("self.is_cuda" if is_method else "is_cuda") for each in targets)


def _add_listing(project: Project, name: str, function: ast.FunctionDef, lines: list[str]) -> None:
    """Note a function, or the class of a method, that takes a device and compares it with a list of types."""
    given = function.args
    takes = any(each.arg == "device" for each in (*given.posonlyargs, *given.args, *given.kwonlyargs))
    if takes and _LISTS.search("\n".join(lines[function.lineno - 1 : function.end_lineno])):
        tests = {id(each.test) for each in ast.walk(function) if _is_validation(each)}
        compared = [each for each in ast.walk(function) if isinstance(each, ast.Compare) and id(each) not in tests]
        if any(_LISTS.search(ast.unparse(each)) for each in (*compared, given)):
            project.lists_devices.add(name)


def _is_validation(node: ast.AST) -> TypeGuard[ast.If | ast.Assert]:
    """Return whether a statement refuses what is not in a list, which the tool makes longer: see listed_devices.py."""
    if not isinstance(node, ast.If | ast.Assert) or not isinstance(node.test, ast.Compare):
        return False
    if isinstance(node, ast.If):
        refuses = isinstance(node.test.ops[0], ast.NotIn) and isinstance(node.body[-1], ast.Raise) and not node.orelse
    else:
        refuses = isinstance(node.test.ops[0], ast.In)
    return refuses and not ast.unparse(node.test.left).endswith(".type")


def _add_parameters(project: Project, module: str, name: str, given: ast.arguments, skipped: int) -> None:
    names = tuple(each.arg for each in (*given.posonlyargs, *given.args))[skipped:]
    project.parameters.setdefault(name, {}).setdefault(module, set()).add(names)
