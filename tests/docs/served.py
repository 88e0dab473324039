"""Which functions of deepspeed's builders and Colossal-AI's loaders exist here: names in their sources against our classes."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from pathlib import Path
from typing import Any

from anyaccel.op_builder.all_ops import builder_class
from anyaccel.op_builder.colossalai.surface import modules
from anyaccel.op_builder.kernel_loader import loader_names
from anyaccel.op_builder.op import resolve

_BINDINGS = {
    "AsyncIOBuilder": "ops/csrc/aio/py_lib/py_ds_aio.cpp",
    "CCLCommBuilder": "ops/csrc/cpu/comm/ccl.cpp",
    "CPUAdagradBuilder": "ops/csrc/adagrad/cpu_adagrad.cpp",
    "CPUAdamBuilder": "ops/csrc/adam/cpu_adam.cpp",
    "CPULionBuilder": "ops/csrc/lion/cpu_lion.cpp",
    "FPQuantizerBuilder": "ops/csrc/fp_quantizer/fp_quantize.cpp",
    "FusedAdamBuilder": "ops/csrc/adam/fused_adam_frontend.cpp",
    "FusedLambBuilder": "ops/csrc/lamb/fused_lamb_cuda.cpp",
    "FusedLionBuilder": "ops/csrc/lion/fused_lion_frontend.cpp",
    "InferenceBuilder": "ops/csrc/transformer/inference/csrc/pt_binding.cpp",
    "InferenceCoreBuilder": "inference/v2/kernels/core_ops/core_ops.cpp",
    "PinMemoryBuilder": "ops/csrc/pin_memory/py_ds_pin_memory.cpp",
    "QuantizerBuilder": "ops/csrc/quantization/pt_binding.cpp",
    "RaggedOpsBuilder": "inference/v2/kernels/ragged_ops/ragged_ops.cpp",
    "RaggedUtilsBuilder": "inference/v2/ragged/csrc/ragged_ops.cpp",
    "RandomLTDBuilder": "ops/csrc/random_ltd/pt_binding.cpp",
    "SpatialInferenceBuilder": "ops/csrc/spatial/csrc/pt_binding.cpp",
    "UtilsBuilder": "ops/csrc/utils/py_ds_utils.cpp",
}
"""For builders whose functions make sense without CUDA, the file that binds them."""

LEFT = {
    "DeepCompileBuilder": "ops/csrc/compile/init.cpp",
    "EvoformerAttnBuilder": "ops/csrc/deepspeed4science/evoformer_attn/attention.cpp",
    "GDSBuilder": "ops/csrc/gds/py_lib/py_ds_gds.cpp",
    "InferenceCutlassBuilder": "inference/v2/kernels/cutlass_ops/cutlass_ops.cpp",
    "TransformerBuilder": "ops/csrc/transformer/ds_transformer_cuda.cpp",
}
"""The files of builders that are left to deepspeed; docs/deepspeed.md says why."""

_NOT_COUNTED = {
    "ops/csrc/cpu/adam/fused_adam.cpp",  # FusedAdamBuilder's function again, as in the next two
    "ops/csrc/cpu/lion/fused_lion.cpp",
    "ops/csrc/xpu/adam/fused_adam_frontend.cpp",
    "ops/csrc/xpu/adagrad/cpu_adagrad.cpp",  # CPUAdagradBuilder's again, and a copy to an XPU
    "ops/csrc/cpu/comm/shm_interface.cpp",  # ShareMemCommBuilder, served by the integration (tests/integrations)
}
"""Files that bind functions of builders in the table, or of the integration."""

_OF_CUDA = {
    "cuda_wf6af16_linear", "preprocess_weight",  # a layout of 6-bit weights for CUDA's kernels
    "allocate_workspace_<dtype>", "release_workspace", "retake_workspace", "reset_cache", "repeat_kv_cache_<dtype>",
    "softmax_context_<dtype>", "softmax_context_int8",  # the workspace of its CUDA context, and attention over the cache in it
}  # fmt: skip
"""Functions that are not provided."""

_NATIVE = (".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp")

COLOSSALAIS = {
    "CPUAdamLoader": ("CPUAdamOptimizer", "CPUAdamOptimizer.step"),
    "FusedOptimizerLoader": (
        "multi_tensor_scale", "multi_tensor_sgd", "multi_tensor_adam", "multi_tensor_lamb", "multi_tensor_l2norm",
    ),
    "LayerNormLoader": ("forward_affine", "backward_affine"),
    "MoeLoader": ("cumsum_sub_one", "dispatch_forward", "dispatch_backward", "combine_forward", "combine_backward"),
    "ScaledMaskedSoftmaxLoader": ("forward", "backward", "get_batch_per_block"),
    "ScaledUpperTriangleMaskedSoftmaxLoader": ("forward", "backward"),
    "InferenceOpsLoader": (
        "decode_kv_cache_memcpy", "context_kv_cache_memcpy", "rotary_embedding_and_cache_copy", "rotary_embedding",
        "silu_and_mul", "rms_layernorm", "fused_add_rms_layernorm", "get_cos_and_sin", "flash_decoding_attention",
        "convert_fp8",
    ),
    "FlashAttentionLoader": ("__call__",),
    "FlashAttentionDaoLoader": ("__call__",),
    "FlashAttentionWithCustomMaskLoader": ("__call__",),
    "FlashAttentionForFloatAndCustomMaskLoader": ("__call__",),
}  # fmt: skip
"""Colossal-AI's loaders, with the functions that its modules bind (``extensions`` of colossalai 0.5.0)."""


def _bound(file: Path) -> dict[str, list[str]]:
    """Return the names that a C++ file binds to Python, in order, methods as ``class.method``, each with its keywords."""
    text = re.sub(r"\\\n", "\n", file.read_text(errors="replace"))
    found = list(re.finditer(r'(\bm\.def|class_<[^>]+>|\)\s*\.def)\(\s*(?:m,\s*)?"(\w+)"(\s*#)?', text))
    bound: dict[str, list[str]] = {}
    owner = ""
    for this, following in zip(found, [*found[1:], None], strict=True):
        kind, name, of_dtypes = this.groups()
        owner = name if kind.startswith("class_") else owner
        name = (
            f"{owner}.{name}" if kind.endswith(".def") and kind != "m.def" else f"{name}<dtype>" if of_dtypes else name
        )
        keywords = re.findall(r'"(\w+)"_a', text[this.end() : following.start() if following else len(text)])
        bound[name] = list(dict.fromkeys([*bound.get(name, []), *keywords]))
    return bound


def _serves(builder: str) -> Any:
    """Return the class with the attributes of a builder's module here, or None; loads nothing."""
    if builder == "CCLCommBuilder":  # of the integration, which deepspeed must not be imported before
        return resolve("op_builder.deepspeed.ccl_comm:CCLCommModule")
    cls: Any = builder_class(builder, "cpu")
    if cls is None:
        return None
    if builder == "AsyncIOBuilder":
        return resolve("op_builder.deepspeed.async_files:AsyncIOModule")
    module = getattr(cls, "MODULE", "")
    return resolve(f"op_builder.deepspeed.{module}") if module else cls.OP.functions_class()


def _sources() -> Path:
    found = importlib.util.find_spec("deepspeed")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def uncounted_files() -> list[str]:
    """Return deepspeed's files that bind functions, and that no table or list here has."""
    known = {*_BINDINGS.values(), *LEFT.values(), *_NOT_COUNTED}
    root = _sources()
    texts = {file: file.read_text(errors="replace") for file in root.rglob("*") if file.suffix in _NATIVE}
    binding = [file for file, text in texts.items() if re.search(r"PYBIND11_MODULE|TORCH_LIBRARY", text)]
    return [name for name in (str(file.relative_to(root)) for file in binding) if name not in known]


def unread_functions() -> dict[str, set[str]]:
    """Return the names that a plain search for ``def("`` finds in deepspeed's files, and :func:`_bound` does not."""
    unread = {}
    for builder, file in _BINDINGS.items():
        plain = set(re.findall(r'\bdef\(\s*(?:m,\s*)?"(\w+)', (_sources() / file).read_text(errors="replace")))
        read = {name.rpartition(".")[2].replace("<dtype>", "") for name in _bound(_sources() / file)}
        unread[builder] = plain - read
    return {builder: names for builder, names in unread.items() if names}


def deepspeeds() -> list[tuple[str, list[str], list[str]]]:
    """Return for each builder which functions exist here, and which do not."""
    rows = []
    for builder, file in _BINDINGS.items():
        names = [name for name in _bound(_sources() / file) if name not in _OF_CUDA]
        served = _serves(builder)
        has = [name for name in names if _has(served, name)]
        rows.append((builder, has, [name for name in names if name not in has]))
    return rows


def _found(served: Any, name: str) -> Any:
    """Return a function of a module's class, or a method of a class in it or that it returns; None if there is none."""
    owner, _, method = name.rpartition(".")
    if not owner:
        return getattr(served, method, None)
    made = getattr(served, owner, None)
    if made is None or inspect.isclass(made):
        return getattr(made, method, None)
    cls = getattr(sys.modules[made.__module__], inspect.signature(made).return_annotation, None)
    return getattr(cls, method, None)


def _has(served: Any, name: str) -> bool:
    return all(_found(served, name.replace("<dtype>", dtype)) for dtype in ("fp32", "fp16", "bf16"))


def refused_keywords() -> list[str]:
    """Return the keywords that deepspeed's functions take and ours do not, as ``builder.function(keyword)``."""
    refused = []
    for builder, file in _BINDINGS.items():
        for name, keywords in _bound(_sources() / file).items():
            function = _found(_serves(builder), name)
            taken = inspect.signature(function).parameters if function is not None and keywords else {}
            refused += [f"{builder}.{name}({keyword})" for keyword in keywords if keyword not in taken]
    return refused


def colossalais() -> list[tuple[str, list[str], list[str]]]:
    """Return for each loader which functions exist here, and which do not."""
    here, rows = modules(), []
    for loader, names in COLOSSALAIS.items():
        served = (
            resolve(f"op_builder.colossalai.{here[loader]}") if loader in loader_names() and loader in here else None
        )
        has = [name for name in names if _found(served, name) is not None]
        rows.append((loader, has, [name for name in names if name not in has]))
    return rows


def table(kind: str, rows: list[tuple[str, list[str], list[str]]]) -> str:
    """Return the rows in the page's format, preceded by their totals."""
    served, all_of = sum(len(has) for _, has, _ in rows), sum(len(has) + len(lacks) for _, has, lacks in rows)
    lines = [
        "",
        f"{served} of {all_of} functions are served:",
        "",
        f"| {kind} | served | not served |",
        "|---|---|---|",
    ]
    for name, has, lacks in rows:
        lines.append(f"| `{name}` | {_listed(has)} | {_listed(lacks)} |")
    return "\n".join([*lines, "", ""])


def _listed(names: list[str]) -> str:
    return ", ".join("the function itself" if name == "__call__" else f"`{name}`" for name in names)
