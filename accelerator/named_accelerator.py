"""Bodies that follow from a device's name alone, whatever serves the device."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from . import host_ranges
from .abstract_accelerator import DeepSpeedAccelerator

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence
    from types import ModuleType

    import torch

    from .typed_tensor import TypedTensor

__all__ = ["NamedAccelerator"]


class NamedAccelerator(DeepSpeedAccelerator):
    """An asynchronous device known by its name; what differs is overridden."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    # How the device behaves

    def is_synchronized_device(self) -> bool:
        return False

    def use_host_timers(self) -> bool:
        return self.is_synchronized_device()

    def resolves_data_dependency(self) -> bool:
        return self.is_synchronized_device()

    def handles_memory_backpressure(self) -> bool:
        return self.is_synchronized_device()

    # Names

    def device_name(self, device_index: int | None = None) -> str:
        return self._name if device_index is None else f"{self._name}:{device_index}"

    def device(self, device_index: int | None = None) -> torch.device:
        import torch

        return torch.device(self.device_name(device_index))

    def random(self) -> ModuleType:
        import torch

        return torch.random

    # Data types

    def is_fp16_supported(self) -> bool:
        return True

    def supported_dtypes(self) -> list[torch.dtype]:
        import torch

        dtypes = [torch.float32]
        if self.is_fp16_supported():
            dtypes.append(torch.float16)
        if self.is_bf16_supported():
            dtypes.append(torch.bfloat16)
        return dtypes

    # Ranges

    def range_push(self, msg: str, domain: str | None = None, category: str | None = None) -> Any:
        host_ranges.push(msg)

    def range_pop(self, domain: str | None = None) -> Any:
        host_ranges.pop()

    def is_triton_supported(self) -> bool:
        return False

    # Typed tensors

    @property
    def BFloat16Tensor(self) -> Any:
        return self._typed("bfloat16")

    @property
    def ByteTensor(self) -> Any:
        return self._typed("uint8")

    @property
    def DoubleTensor(self) -> Any:
        return self._typed("float64")

    @property
    def FloatTensor(self) -> Any:
        return self._typed("float32")

    @property
    def HalfTensor(self) -> Any:
        return self._typed("float16")

    @property
    def IntTensor(self) -> Any:
        return self._typed("int32")

    @property
    def LongTensor(self) -> Any:
        return self._typed("int64")

    def _typed(self, dtype: str) -> TypedTensor:
        import torch

        return self.tensor_type(getattr(torch, dtype))

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        placed = tensor if hasattr(tensor, "device") else tensor.data  # a PackedSequence has its tensor there
        return placed.device.type == self._name

    # Ops

    def op_builder_dir(self) -> str:
        own = f"anyaccel.op_builder.{self._name}"
        return own if importlib.util.find_spec(own) is not None else "anyaccel.op_builder"

    def create_op_builder(self, class_name: str) -> Any:
        builder = self.get_op_builder(class_name)
        return None if builder is None else builder()

    def get_op_builder(self, class_name: str) -> Any:
        from ..op_builder import find_builder

        return find_builder(class_name, self._name)

    def build_extension(self) -> Any:
        from torch.utils.cpp_extension import BuildExtension

        return BuildExtension

    # Launching

    def export_envs(self) -> list[str]:
        return []

    def visible_devices_envs(self) -> list[str]:
        return []

    def set_visible_devices_envs(
        self, current_env: MutableMapping[str, str], local_accelerator_ids: Sequence[int | str]
    ) -> None:
        for variable in self.visible_devices_envs():
            current_env[variable] = ",".join(map(str, local_accelerator_ids))

    # torch.compile

    def get_compile_backend(self) -> str:
        return self._compile_backend

    def set_compile_backend(self, backend: str) -> None:
        import torch._dynamo

        backends = torch._dynamo.list_backends(exclude_tags=())
        if backend not in backends:
            msg = f"set_compile_backend failed: got {backend!r}; expected one of {backends}. Fix: choose one of these."
            raise ValueError(msg)
        self._compile_backend = backend
