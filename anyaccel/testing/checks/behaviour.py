"""How the device behaves, what it computes in, and its ranges."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from .expect import expect, expect_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...accelerator import DeepSpeedAccelerator

__all__ = ["CHECKS"]


def _answers_bool(member: str, accelerator: DeepSpeedAccelerator) -> None:
    expect_type(getattr(accelerator, member)(), bool, f"{member}()")


def _is_available(accelerator: DeepSpeedAccelerator) -> None:
    _answers_bool("is_available", accelerator)
    expect(accelerator.is_available(), "is_available() is False, so nothing else can be checked")


def _is_fp64_supported(accelerator: DeepSpeedAccelerator) -> None:
    _answers_bool("is_fp64_supported", accelerator)
    if accelerator.is_fp64_supported():
        total = torch.full((3,), 0.1, dtype=torch.float64, device=accelerator.current_device_name()).sum().item()
        expect(abs(total - 0.3) < 1e-12, f"is_fp64_supported() is True, and three times 0.1 is {total}")


def _supports_nvtx_domain(accelerator: DeepSpeedAccelerator) -> None:
    expect_type(accelerator.supports_nvtx_domain, bool, "supports_nvtx_domain")


def _name(accelerator: DeepSpeedAccelerator) -> None:
    expect(accelerator._name == accelerator.device_name(), f"_name is {accelerator._name!r}, unlike device_name()")


def _supported_dtypes(accelerator: DeepSpeedAccelerator) -> None:
    dtypes = accelerator.supported_dtypes()
    expect_type(dtypes, list, "supported_dtypes()")
    expect(torch.float32 in dtypes, f"supported_dtypes() is {dtypes}, without float32")
    for dtype, member in ((torch.float16, "is_fp16_supported"), (torch.bfloat16, "is_bf16_supported")):
        answer = getattr(accelerator, member)()
        expect((dtype in dtypes) == answer, f"supported_dtypes() is {dtypes}, and {member}() is {answer}")


def _ranges(accelerator: DeepSpeedAccelerator) -> None:
    accelerator.range_push("outer")
    accelerator.range_push("inner", domain="anyaccel", category="check")
    accelerator.range_pop(domain="anyaccel")
    accelerator.range_pop()


def _supports(accelerator: DeepSpeedAccelerator) -> None:
    expect_type(accelerator.supports("create_graph"), bool, "supports('create_graph')")
    try:
        accelerator.supports("no_such_member")
    except AttributeError:
        return
    expect(False, "supports('no_such_member') answers; expected AttributeError")


def _autocast(accelerator: DeepSpeedAccelerator) -> None:
    dtype = accelerator.supported_dtypes()[-1]
    left = torch.ones(2, 2, dtype=torch.float32, device=accelerator.current_device_name())
    with accelerator.autocast(dtype=dtype, enabled=dtype != torch.float32):
        product = left @ left
    expect(product.dtype == dtype, f"a product under autocast({dtype}) is {product.dtype}")
    with accelerator.autocast(enabled=False):
        product = left @ left
    expect(product.dtype == torch.float32, f"a product under a disabled autocast is {product.dtype}")


def _grad_scaler(accelerator: DeepSpeedAccelerator) -> None:
    scaler = accelerator.grad_scaler(init_scale=4.0)
    scaled = scaler.scale(torch.ones((), device=accelerator.current_device_name()))
    expect(float(scaled) == 4.0, f"grad_scaler(init_scale=4.0) scales 1 to {float(scaled)}")


_BOOLEANS = (
    "is_synchronized_device",
    "use_host_timers",
    "resolves_data_dependency",
    "handles_memory_backpressure",
    "is_bf16_supported",
    "is_fp16_supported",
    "is_triton_supported",
    "prefer_triton_grouped_mm",
    "is_current_stream_capturing",
)

CHECKS: dict[str, Callable[[DeepSpeedAccelerator], None]] = {
    **{member: partial(_answers_bool, member) for member in _BOOLEANS},
    "is_available": _is_available,
    "is_fp64_supported": _is_fp64_supported,
    "supports_nvtx_domain": _supports_nvtx_domain,
    "_name": _name,
    "supported_dtypes": _supported_dtypes,
    "range_push": _ranges,
    "range_pop": _ranges,
    "supports": _supports,
    "autocast": _autocast,
    "grad_scaler": _grad_scaler,
}
