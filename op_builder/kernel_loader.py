"""Several implementations of one kernel, chosen by hardware and priority. The idea and the names are Colossal-AI's."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

from .attention import FlashAttentionPackageExtension, FlashAttentionSDPAExtension
from .engine.errors import NoKernelError, OpError
from .engine.trace import Trace
from .implementations import (
    CPUAdamArmExtension,
    CPUAdamX86Extension,
    DenseTritonExtension,
    FusedOptimizerCPUExtension,
    FusedOptimizerCUDAExtension,
    InferenceOpsExtension,
    RMSNormTritonExtension,
    SoftmaxTritonExtension,
    implementations_of,
)
from .kernel_extensions import KernelExtension

__all__ = [
    "LOADERS",
    "ActivationsLoader",
    "AdagradLoader",
    "CPUAdamLoader",
    "DenseLoader",
    "FlashAttentionLoader",
    "FusedOptimizerLoader",
    "InferenceOpsLoader",
    "KernelLoader",
    "LambLoader",
    "LayerNormLoader",
    "LionLoader",
    "MoeLoader",
    "MultiTensorAdamLoader",
    "MultiTensorLoader",
    "QuantizationLoader",
    "RMSNormLoader",
    "RotaryEmbeddingLoader",
    "SGDLoader",
    "ScaledMaskedSoftmaxLoader",
    "ScaledUpperTriangleMaskedSoftmaxLoader",
]


class KernelLoader:
    """Chooses among the implementations of one kernel, and loads it.

    Attributes:
        REGISTRY: the implementations' classes; every loader has a list of its own.
    """

    REGISTRY: ClassVar[list[type[KernelExtension]]] = []

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.REGISTRY = list(map(_require_extension, cls.__dict__.get("REGISTRY", ())))

    @classmethod
    def register_extension(cls, extension: Any) -> None:
        """Add an implementation; one of the same name is replaced.

        Args:
            extension: its class, a subclass of ``KernelExtension``.

        Raises:
            TypeError: when it is not one, lacks a method, or its name or priority is none.
        """
        _require_extension(extension)
        cls.REGISTRY[:] = [known for known in cls.REGISTRY if known.name != extension.name]
        cls.REGISTRY.append(extension)

    def load(self, ext_name: str | None = None) -> Any:
        """Load an implementation.

        Args:
            ext_name: its name; by default the one of highest priority among those that serve here, and when that cannot
                be loaded the next, which the log tells.

        Returns:
            The kernel's functions.

        Raises:
            NoKernelError: when there is none, or none of that name, saying of each why not.
            OpError: when the one that was named cannot be loaded.
        """
        if ext_name is not None:
            extension = self._named(ext_name)
            if not extension.is_available():
                name = type(self).__name__
                msg = f"{name} failed: got {ext_name!r}; expected one for this machine. Fix: {name}().load() chooses."
                raise NoKernelError(msg)
            extension.assert_compatible()
            return extension.load()
        trace = Trace(type(self).__name__)
        for extension in self.usable(trace):
            try:
                functions = extension.load()
            except Exception as error:  # noqa: BLE001  # one implementation's fault is not another's
                reason = str(error) if isinstance(error, OpError) else f"{type(error).__name__}: {error}"
                trace.reject(extension.name, f"it serves here, but {reason}", logging.WARNING)
            else:
                trace.accept(extension.name, f"priority {extension.priority}, the highest that serves here")
                return functions
        raise self._none_of(trace)

    def usable(self, trace: Trace) -> list[KernelExtension]:
        """Return the implementations that serve here, best first; builds nothing.

        Args:
            trace: says of every other one why not.
        """
        usable = []
        for cls in sorted(self.REGISTRY, key=lambda one: -one.priority):
            try:
                extension = cls()
                if not extension.is_available():
                    trace.reject(cls.name, "this machine has not what it is for")
                    continue
                extension.assert_compatible()
            except OpError as error:
                trace.reject(cls.name, str(error))
                continue
            except Exception as error:  # noqa: BLE001  # one implementation's fault is not another's
                trace.reject(cls.name, f"{type(error).__name__}: {error}", logging.WARNING)
                continue
            usable.append(extension)
        return usable

    def _named(self, ext_name: str) -> KernelExtension:
        for cls in self.REGISTRY:
            if cls.name == ext_name:
                return cls()
        choices = ", ".join(cls.name for cls in self.REGISTRY) or "none"
        msg = f"{type(self).__name__} failed: got {ext_name!r}; expected one of: {choices}. Fix: correct the name."
        raise NoKernelError(msg)

    def _none_of(self, trace: Trace) -> NoKernelError:
        name = type(self).__name__
        if not self.REGISTRY:
            msg = (
                f"{name} failed: got no implementation; expected one. Fix: {name}.register_extension(one of your own)."
            )
            return NoKernelError(msg)
        msg = (
            f"{name} failed: got {trace}; expected one that serves here. Fix: the first that is meant for this machine."
        )
        return NoKernelError(msg)


def _require_extension(extension: Any) -> type[KernelExtension]:
    """Return an implementation's class, when it is whole.

    Raises:
        TypeError: saying what is missing.
    """
    problem = ""
    if not (isinstance(extension, type) and issubclass(extension, KernelExtension)):
        problem = "expected a subclass of KernelExtension. Fix: pass the class"
    elif extension.__abstractmethods__:
        problem = f"expected one with {', '.join(sorted(extension.__abstractmethods__))}. Fix: define them"
    elif not isinstance(getattr(extension, "name", None), str):
        problem = "expected one with a name. Fix: name = '...'"
    elif not isinstance(getattr(extension, "priority", None), int):
        problem = "expected a priority that is a whole number. Fix: priority = 1"
    if problem:
        msg = f"registering an implementation of a kernel failed: got {extension!r}; {problem}."
        raise TypeError(msg)
    found: type[KernelExtension] = extension
    return found


class CPUAdamLoader(KernelLoader):
    """Adam for parameters in the host's memory."""

    REGISTRY: ClassVar = [CPUAdamX86Extension, CPUAdamArmExtension]


class FusedOptimizerLoader(KernelLoader):
    """Multi-tensor optimizers for parameters on the accelerator."""

    REGISTRY: ClassVar = [FusedOptimizerCUDAExtension, FusedOptimizerCPUExtension]


class LayerNormLoader(KernelLoader):
    """Layer normalisation: ``layer_norm``, ``add_layer_norm``."""

    REGISTRY: ClassVar = implementations_of("layer_norm", "LayerNormBuilder")


class RMSNormLoader(KernelLoader):
    """Root-mean-square normalisation: ``rms_norm``, ``add_rms_norm``."""

    REGISTRY: ClassVar = [*implementations_of("rms_norm", "RMSNormBuilder"), RMSNormTritonExtension]


class ScaledMaskedSoftmaxLoader(KernelLoader):
    """Softmax with scale and mask: ``scaled_masked_softmax``."""

    REGISTRY: ClassVar = [*implementations_of("softmax", "SoftmaxBuilder"), SoftmaxTritonExtension]


class ScaledUpperTriangleMaskedSoftmaxLoader(KernelLoader):
    """Softmax with scale and causal mask: ``scaled_upper_triang_masked_softmax``."""

    REGISTRY: ClassVar = [*implementations_of("softmax", "SoftmaxBuilder"), SoftmaxTritonExtension]


class ActivationsLoader(KernelLoader):
    """Activations: ``swiglu``, ``geglu``, ``bias_gelu``."""

    REGISTRY: ClassVar = implementations_of("activations", "ActivationsBuilder")


class DenseLoader(KernelLoader):
    """A linear layer with a sigmoid: ``dense``."""

    REGISTRY: ClassVar = [*implementations_of("dense", "DenseBuilder"), DenseTritonExtension]


class RotaryEmbeddingLoader(KernelLoader):
    """Rotary position embedding: ``rotary_embedding``."""

    REGISTRY: ClassVar = implementations_of("rotary_embedding", "RotaryEmbeddingBuilder")


class QuantizationLoader(KernelLoader):
    """Groupwise quantization: ``quantize``, ``dequantize``, ``quantize_float8``, ``dequantize_float8``."""

    REGISTRY: ClassVar = implementations_of("quantization", "QuantizationBuilder")


class MoeLoader(KernelLoader):
    """Mixtures of experts: ``topk_gating``, ``route``, ``dispatch``, ``combine``."""

    REGISTRY: ClassVar = implementations_of("moe", "MoeBuilder")


class MultiTensorLoader(KernelLoader):
    """Many tensors at once: ``l2norm``, ``scale``, ``axpby``."""

    REGISTRY: ClassVar = implementations_of("multi_tensor", "MultiTensorBuilder")


class MultiTensorAdamLoader(KernelLoader):
    """Adam for many tensors: ``multi_tensor_adam_step``."""

    REGISTRY: ClassVar = implementations_of("multi_tensor_adam", "MultiTensorAdamBuilder")


class LionLoader(KernelLoader):
    """Lion: ``lion_step``."""

    REGISTRY: ClassVar = implementations_of("lion", "LionBuilder")


class AdagradLoader(KernelLoader):
    """Adagrad: ``adagrad_step``."""

    REGISTRY: ClassVar = implementations_of("adagrad", "AdagradBuilder")


class SGDLoader(KernelLoader):
    """SGD with momentum: ``sgd_step``."""

    REGISTRY: ClassVar = implementations_of("sgd", "SGDBuilder")


class LambLoader(KernelLoader):
    """LAMB: ``lamb_step``."""

    REGISTRY: ClassVar = implementations_of("lamb", "LambBuilder")


class InferenceOpsLoader(KernelLoader):
    """Kernels of inference by Colossal-AI's names, into given tensors."""

    REGISTRY: ClassVar = [InferenceOpsExtension]


class FlashAttentionLoader(KernelLoader):
    """Attention that does not store the scores: ``attention(query, key, value, ...)``."""

    REGISTRY: ClassVar = [FlashAttentionPackageExtension, FlashAttentionSDPAExtension]


LOADERS: tuple[type[KernelLoader], ...] = (
    CPUAdamLoader,
    FusedOptimizerLoader,
    MultiTensorAdamLoader,
    LionLoader,
    AdagradLoader,
    SGDLoader,
    LambLoader,
    MultiTensorLoader,
    LayerNormLoader,
    RMSNormLoader,
    ScaledMaskedSoftmaxLoader,
    ScaledUpperTriangleMaskedSoftmaxLoader,
    ActivationsLoader,
    DenseLoader,
    RotaryEmbeddingLoader,
    QuantizationLoader,
    MoeLoader,
    InferenceOpsLoader,
    FlashAttentionLoader,
)
"""Every loader, in the order of the report."""
