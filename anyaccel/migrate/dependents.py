"""Objections to rewriting a question that come from the code that runs only if the answer is yes."""

from __future__ import annotations

import builtins
import re
import sys
from typing import TYPE_CHECKING

import libcst as cst

from .answers import Objection
from .data_parallel import DATA_PARALLEL, PARALLEL_ON, SEVERAL, WRAPPED
from .dependent_texts import texts_around, texts_that_depend
from .functions_that_stay import functions_that_stay
from .kernels import calls_kernel, kernels_imported, moves_to_cuda
from .nodes import library_of
from .other_libraries import is_foreign
from .other_ways import NAMES_HALF, appended, functions_called, is_number
from .questions import OF_MESSAGE
from .site import SiteOutcome
from .source_view import dotted
from .values_of_cuda import decided_in, values_of_cuda
from .visible_devices import reads_visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .plan import Plan
    from .regions import Regions

__all__ = [
    "asks_for_bfloat16",
    "condition_around",
    "is_known_code",
    "of_what_depends",
]

_PRECISION = re.compile(r"\b(float16|bfloat16|half|fp16|bf16)\b")
_IS_IMPORTED = re.compile(
    r"^_*(WITH|HAS|HAVE)_(?!AMP|BF16|BFLOAT16|FP16|FLOAT16|CUDA|GPU|TORCH)[A-Z]\w*$|^_*(?!CUDA|GPU|TORCH)[A-Z]\w*_(AVAILABLE|INSTALLED|IMPORTED)$"
)
_BUILTINS = frozenset(dir(builtins))
_OWN = re.compile(
    "|".join(
        (
            r"\w*(flash_?(att|\d)|(?<!allow_)tf32|triton|xformers|bitsandbytes|tensorrt|cupy|nvml|onnxruntime)\w*",
            r"\b(\w+_)?(bnb|apex|trt|dali|vllm|faiss|nf4)(_\w+)?\b",  # short names of libraries, as whole words only
            r"[\"']flash[\"']|\b\w+_fa[23]\b",  # versions of FlashAttention
            r"\b\w*supports?_cuda\b",
            r"\b(is_shared|share_memory_?)\b",  # CUDA tensors are shared between processes in their own way
            r"\b(\w+_)?(nvenc|nvdec|cuvid)\b",  # NVIDIA's video codecs
            r"\bgpu_(hist|predictor)\b",  # XGBoost
            r"\bpreferred_(linalg|blas)_library\b",  # cuSOLVER and cuBLAS
            r"[\"']--gpus\b",  # Docker
            r"/GPU:\d",  # TensorFlow
            r"(?<=\.)(\w+_)?(BACKEND|TARGET|DEVICE)_(\w+_)?CUDA\b",  # OpenCV
        )
    ),
    re.IGNORECASE,
)
_COMMENT = re.compile(r"(^|\s)#[^\n]*")
_PARTS_OF_ANSWER = (cst.Call, cst.Arg, cst.BooleanOperation, cst.UnaryOperation)
_QUANTIZES = re.compile(r"^(\w+_)?(quantiz(e|ation)|load_in_[48]bit)$")  # as bitsandbytes does
_OF_MODULE = re.compile(r"^(?!torch\.|self\.)\w+\.(?:\w+\.)*(gpu|cuda)\.\w+$")  # lib.gpu.forward()
_OF_GPU = re.compile(r"(?<=[^_])_(gpu|cuda)(?=_|$)|^(gpu|cuda)(?=_)")
_OF_CPU = re.compile(r"(?<=[^_])_cpu(?=_|$)|^cpu(?=_)")
_VERSIONS = ("torch.version.cuda", "torch.version.hip", "torch._C._cuda")
_NCCL = re.compile(r"\S*nccl\S*", re.IGNORECASE)
_SAYS_OWN = re.compile(
    r"flash[-_]?attn|flash[-_]?attention|triton|xformers|bitsandbytes|\bbnb|\bapex\b|tensorrt|\bcupy|nvidia|nvml|cudnn|onnx|vllm|8bit",
    re.IGNORECASE,
)
_AUTOCAST = re.compile(r"\bautocast\((?![^)]*\bdtype\b)")
_SCALER = re.compile(r"\bself\.\w*scaler\b(?! = )")
MESSAGES = ("the number of CUDA devices, in a message", OF_MESSAGE)


def of_what_depends(plan: Plan, found: list[Regions], asked: cst.CSTNode) -> Iterator[Objection]:
    """Yield the objections if code that depends on the check stays CUDA-only or chooses a precision.

    Functions of this module that the code calls are searched too.
    """
    yield from texts_around(plan, asked)
    yield from _looked_for(plan, asked)
    tainted = functions_that_stay(plan, plan.changes)
    condition = condition_around(plan, asked)
    half = condition is not None and NAMES_HALF.search(plan.view.code(condition).replace("bfloat16", "")) is not None
    if condition is not None and (own := _OWN.search(plan.view.code(condition))) and not any(one.all for one in found):
        yield Objection(
            "depends-on-function", f"{own[0]} is asked for, too, and is made for CUDA; decide on both together"
        )
    for one in found:
        for region in one.all if one.other is not None else ():
            yield from _pairs(plan, region, one.other)
    for region in (each for one in found for each in one.all):
        yield from _sites_that_stay(plan, region)
        yield from _names_of_cuda(plan, region, asked, condition)
        yield from _of_scaler(plan, region)
        yield from _of_asked_device(plan, region)
        if reads_visible(plan.view, region):
            yield Objection("depends-on-cuda", "CUDA_VISIBLE_DEVICES is read here; decide what other devices read")
        yield from values_of_cuda(plan, region, asked)
        is_asked = asks_for_bfloat16(plan, asked)
        if (_PRECISION.search(plan.view.code(region)) and not is_asked) or is_number(region) or half:
            yield Objection("precision", "chooses a precision or a number; decide what other devices use", True)
        if named := appended(plan, region):
            yield Objection("depends-on-cuda", f"{named} is passed to a reported call; decide on both together")
        called = next((name for name in _called_or_handed_on(plan, region) if name in tainted), "")
        if called:
            yield Objection(
                "depends-on-cuda",
                f"{called}() depends on it and contains code for CUDA only; port that function, or keep the question",
            )


def _called_or_handed_on(plan: Plan, region: cst.CSTNode) -> Iterator[str]:
    """Yield the names of what code calls, and the names that it uses without a call: ``context = solver if … else …``."""
    yield from re.findall(r"(\w+)\s*\(", plan.view.code(region))
    for name in plan.view.inside(region, cst.Name):
        around = plan.view.parent(name)
        is_part = isinstance(around, cst.Attribute) and around.attr is name
        is_keyword = isinstance(around, cst.Arg) and around.keyword is name
        bound = plan.view.bindings_of(name) if not (is_part or is_keyword) else []
        if bound and all(isinstance(each, cst.FunctionDef | cst.ClassDef) for each in bound):
            yield name.value


def _looked_for(plan: Plan, asked: cst.CSTNode) -> Iterator[Objection]:
    """Yield an objection to a question that a function answers together with whether it can import a library."""
    around = list(plan.view.ancestors(asked))
    function = next((each for each in around if isinstance(each, cst.FunctionDef)), None)
    answer = next((each for each in around if not isinstance(each, _PARTS_OF_ANSWER)), None)
    imported = _imported_module(plan, function) if function is not None and isinstance(answer, cst.Return) else ""
    if imported and not imported.startswith(".") and imported.partition(".")[0] not in plan.project.packages:
        yield Objection(
            "depends-on-function", f"{imported} is looked for, too, and may be made for CUDA; decide on both together"
        )


def _sites_that_stay(plan: Plan, region: cst.CSTNode) -> Iterator[Objection]:
    """Yield an objection for each site in a region that stays specific to CUDA, apart from messages for the user."""
    for one in decided_in(plan, region):
        is_message = one.rule == "env" and isinstance(one.node, cst.FormattedString)
        if is_message or (one.outcome is SiteOutcome.LEFT and one.reason in MESSAGES):
            continue
        if one.outcome is SiteOutcome.REPORTED or (one.outcome is SiteOutcome.LEFT and one.rule != "env"):
            line = plan.view.position(one.node)[0]
            yield Objection(
                "depends-on-cuda",
                f"code that depends on it stays specific to CUDA (line {line}); port that code, or keep the question",
            )


def _names_of_cuda(
    plan: Plan, region: cst.CSTNode, asked: cst.CSTNode, condition: cst.CSTNode | None
) -> Iterator[Objection]:
    """Yield the objections to a region by what it names: functions, libraries and versions that may be CUDA's only."""
    foreign = _call_of_cudas_own(plan, region) or _imported_module(plan, region) or _answer_named(plan, region)
    if not foreign and asked in plan.questions:
        foreign = _imported_function(plan, region)
    if foreign:
        yield Objection(
            "depends-on-function",
            f"{foreign} depends on it and may work on CUDA only; decide whether other devices may run it",
        )
    versions = (node for node, name in plan.view.imported.items() if name.startswith(_VERSIONS))
    version = next((each for each in versions if plan.view.is_within(each, region)), None)
    if version is not None:
        yield Objection(
            "depends-on-cuda",
            f"{plan.view.code(version)} depends on it, which other devices do not have; decide what they show",
        )
    if condition is not None and "is_nccl_available(" in plan.view.code(condition):
        yield Objection("depends-on-cuda", "is_nccl_available() is asked, too; decide which backend other devices use")
    several = SEVERAL.search(plan.view.code(condition if condition is not None else asked))
    if PARALLEL_ON.search(plan.view.code(region)) or (
        several
        and any(DATA_PARALLEL.search(plan.view.code(each)) for each in (region, *functions_called(plan, region)))
    ):
        yield Objection(
            "depends-on-function", "DataParallel depends on it, which works on several CUDA devices only; keep it"
        )
    if wrapped := WRAPPED.search(plan.view.code(region)):
        yield Objection(
            "depends-on-function", f"{wrapped[0]} depends on it, as for DataParallel, which works on CUDA only; keep it"
        )
    if nccl := _NCCL.search(_names_in(plan, region)):
        yield Objection(
            "depends-on-cuda", f"{nccl[0]} depends on it and is specific to NCCL; decide what other devices use"
        )
    own = _OWN.search(_COMMENT.sub("", plan.view.code(region))) or (
        _OWN.search(plan.view.code(condition)) if condition is not None else None
    )
    if own is not None:
        yield Objection(
            "depends-on-function",
            f"{own[0]} depends on it and is made for CUDA; decide whether other devices may run it",
        )
    yield from texts_that_depend(plan, region)


def _of_scaler(plan: Plan, region: cst.CSTNode) -> Iterator[Objection]:
    """Yield an objection to autocast with the dtype of the device, beside a scaler that no file of the program makes.

    A library's base class makes it for CUDA alone, and autocast's dtype is float16 on most other accelerators.
    """
    if plan.project.makes_scalers or not _AUTOCAST.search(plan.view.code(region)):
        return
    function = next((each for each in plan.view.ancestors(region) if isinstance(each, cst.FunctionDef)), None)
    if function is not None and (scaler := _SCALER.search(plan.view.code(function))):
        yield Objection(
            "depends-on-cuda",
            f"autocast depends on it, beside {scaler[0]}, which another library makes; decide which devices scale gradients",
        )


def _of_asked_device(plan: Plan, region: cst.CSTNode) -> Iterator[Objection]:
    """Yield an objection to a device that a configuration elsewhere names, which may be CUDA's: ``config.device``."""
    if "--device" in plan.view.source:  # an option, whose default is rewritten with it
        return
    for made in plan.view.inside(region, cst.Call):
        given = made.args[0].value if plan.view.name(made.func) == "torch.device" and len(made.args) == 1 else None
        if isinstance(given, cst.Attribute) and given.attr.value == "device" and not plan.view.values_of(given):
            code = plan.view.code(given)
            yield Objection(
                "depends-on-cuda", f"{code} depends on it, and may be the name of a CUDA device; decide on both"
            )


def _names_in(plan: Plan, region: cst.CSTNode) -> str:
    """Return the names in a region, and the name of the function or class whose body it is."""
    around = plan.view.parent(region)
    owner = [around.name.value] if isinstance(around, cst.FunctionDef | cst.ClassDef) else []
    names = (node.value for node in plan.view.inside(region, cst.Name))
    return " ".join([*owner, *names])


def asks_for_bfloat16(plan: Plan, asked: cst.CSTNode) -> bool:
    """Return whether the same condition also checks for bfloat16 with a function that every device has."""
    condition = condition_around(plan, asked)
    return condition is not None and "is_bf16_supported" in plan.view.code(condition)


def _call_of_cudas_own(plan: Plan, region: cst.CSTNode) -> str:
    """Return the first call or import in a region whose name says that it is CUDA-only; empty if there is none."""
    for node in plan.view.inside(region, cst.Call, cst.Import, cst.ImportFrom):
        if not isinstance(node, cst.Call):
            name = kernels_imported(plan.view, node)
        else:
            name = dotted(node.func) or ""
            is_own = name.removesuffix(".apply") in plan.functions_of_kernels or calls_kernel(plan.view, node)
            name = name if is_own or _OF_MODULE.search(name) else ""
        if name:
            return name.strip(".")
    return ""


def _imported_module(plan: Plan, region: cst.CSTNode) -> str:
    """Return the first module that a region imports from another library or from this program; empty if there is none."""
    for node in plan.view.inside(region, cst.Import, cst.ImportFrom):
        root = library_of(node)
        if root != "torch" and root not in sys.stdlib_module_names:
            return plan.view.code(node).split()[1]
    return ""


def _imported_function(plan: Plan, region: cst.CSTNode) -> str:
    """Return the first unknown function that a region calls by its bare name; empty if there is none.

    A function is known if it comes from torch, the standard library, the builtins or this module. A CUDA branch that
    calls an unknown function may use a CUDA kernel for what the other branch does without one.
    """
    for node in plan.view.inside(region, cst.Call):
        if isinstance(node.func, cst.Name):
            name = plan.view.name(node.func)
            root = name.partition(".")[0]
            is_known = root == "torch" or root in sys.stdlib_module_names or node.func.value in plan.view.defined_names
            is_known |= moves_to_cuda(node.func.value) and (not root or root in plan.project.packages)
            if not is_known and node.func.value not in _BUILTINS:
                return node.func.value
    return ""


def _pairs(plan: Plan, region: cst.CSTNode, other: cst.CSTNode | None) -> Iterator[Objection]:
    """Yield an objection if the branches use a function for CUDA and one for a CPU: ``loss_gpu()``, ``loss_cpu()``."""
    others = list(plan.view.inside(other, cst.Name)) if other is not None else []
    of_cpu = {each.value: _is_called(plan, each) for each in others if _OF_CPU.search(each.value)}
    of_all = {each.value for each in others}
    called = next((name for name, is_called in of_cpu.items() if is_called), "")
    for name in plan.view.inside(region, cst.Name):
        parted = _OF_GPU.sub(lambda found: "_cpu" if found[0].startswith("_") else "cpu", name.value)
        if parted == name.value or plan.view.values_of(name):
            continue
        plain = _OF_GPU.sub("", name.value).strip("_")  # get_rri_cuda, beside get_rri
        twin = parted if parted in of_cpu else plain if plain in of_all else called if _is_called(plan, name) else ""
        if twin:
            yield Objection(
                "depends-on-function",
                f"{name.value} depends on it, beside {twin}; decide which of them other devices use",
            )


def _is_called(plan: Plan, name: cst.Name) -> bool:
    around = plan.view.parent(name)
    call = plan.view.parent(around) if isinstance(around, cst.Attribute) else around
    return isinstance(call, cst.Call) and call.func in (name, around)


def _answer_named(plan: Plan, region: cst.CSTNode) -> str:
    """Return the other half of a condition, or the function that answers it, if only CUDA may have what it names; else ''.

    ``has_kernels = is_warp_available()`` … ``if x.is_cuda and has_kernels:``; ``torch.cuda.is_available() and WITH_PYG_LIB``
    """
    if isinstance(region, cst.Name) and (_IS_IMPORTED.match(region.value) or _QUANTIZES.match(region.value)):
        return region.value
    for value in plan.view.values_of(region) if isinstance(region, cst.Name) else ():
        if isinstance(value, cst.Call) and (name := _imported_function(plan, value)):
            return name
    return ""


def condition_around(plan: Plan, node: cst.CSTNode) -> cst.CSTNode | None:
    """Return the outermost boolean operation, such as ``a and b``, that contains a site; None if there is none."""
    found = None
    for around in plan.view.ancestors(node):
        if isinstance(around, cst.BooleanOperation):
            found = around
        elif isinstance(around, cst.BaseStatement | cst.BaseSmallStatement | cst.Lambda):
            break
    return found


def is_known_code(plan: Plan, regions: list[cst.CSTNode]) -> bool:
    """Return whether code calls only torch, the standard library, this program and methods, and names nothing of CUDA's.

    What it does on CUDA, it can do on every device that torch has.
    """
    for region in regions:
        if _SAYS_OWN.search(_COMMENT.sub("", plan.view.code(region))) or _imported_function(plan, region):
            return False
        if any(is_foreign(plan.view, call.func) for call in plan.view.inside(region, cst.Call)):
            return False
    return True
