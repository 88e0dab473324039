"""Choosing an implementation by priority among those available, with the reason for rejecting each other one."""

from __future__ import annotations

import logging
import sys
import types
from typing import Any, ClassVar

import pytest
import torch

from anyaccel.op_builder import NoKernelError, OpLoadError
from anyaccel.op_builder.implementations import BuiltImplementation
from anyaccel.op_builder.kernel_extensions import (
    CppExtension,
    CudaExtension,
    KernelExtension,
    SyclExtension,
    TritonExtension,
)
from anyaccel.op_builder.kernel_loader import (
    LOADERS,
    CPUAdamLoader,
    FlashAttentionDaoLoader,
    FlashAttentionLoader,
    FusedOptimizerLoader,
    KernelLoader,
    RMSNormLoader,
)


class _Extension(KernelExtension):
    def is_available(self) -> bool:
        return True

    def assert_compatible(self) -> None:
        pass

    def load(self) -> Any:
        return self.name


class Slow(_Extension):
    name = "slow"


class Fast(_Extension):
    name, priority = "fast", 7


class Elsewhere(_Extension):
    name, priority = "elsewhere", 9

    def is_available(self) -> bool:
        return False


class Incompatible(_Extension):
    name, priority = "incompatible", 10

    def assert_compatible(self) -> None:
        msg = "it needs what is not here"
        raise OpLoadError(msg)


class Crashing(_Extension):
    name, priority = "crashing", 11

    def is_available(self) -> bool:
        return {}["a bug"]


class FailsToLoad(_Extension):
    name, priority = "fails to load", 12

    def load(self) -> Any:
        msg = "the compiler was just removed"
        raise OpLoadError(msg)


class Broken(_Extension):
    name, priority = "broken", 13

    def load(self) -> Any:
        import no_such_package  # noqa: F401


class Abstract(KernelExtension):
    name = "abstract"


class Nameless(_Extension):
    pass


class Unordered(_Extension):
    name, priority = "unordered", "high"


def _loader(*extensions: type[KernelExtension]) -> KernelLoader:
    class Loader(KernelLoader):
        REGISTRY: ClassVar[list[type[KernelExtension]]] = list(extensions)

    return Loader()


def test_the_highest_priority_that_serves_is_chosen() -> None:
    assert _loader(Slow, Fast, Elsewhere).load() == "fast"


def test_those_after_the_best_are_not_asked() -> None:
    class Asked(Slow):
        name, priority = "asked", -1

        def is_available(self) -> bool:
            pytest.fail("a better one was loaded")

    assert _loader(Slow, Fast, Asked).load() == "fast"


def test_one_bad_implementation_never_stops_the_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert _loader(Slow, Broken, Crashing, FailsToLoad, Incompatible, Elsewhere, Fast).load() == "fast"
    for reason in (
        "crashing: rejected, KeyError: 'a bug'",
        "fails to load: rejected, available, but the compiler was just removed",
        "broken: rejected, available, but ModuleNotFoundError: No module named 'no_such_package'",
        "incompatible: rejected, it needs what is not here",
        "elsewhere: rejected, its hardware was not found",
        "fast: accepted, priority 7",
    ):
        assert reason in caplog.text
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warned) == 3  # a bug, and two failures after a check had passed


def test_a_name_chooses_and_fails_loudly() -> None:
    loader = _loader(Slow, Fast, Incompatible)
    assert loader.load(ext_name="slow") == "slow"
    with pytest.raises(OpLoadError, match="it needs what is not here"):
        loader.load(ext_name="incompatible")
    with pytest.raises(NoKernelError, match="'elsewhere' does not run on this machine"):
        _loader(Slow, Elsewhere).load(ext_name="elsewhere")
    with pytest.raises(
        NoKernelError, match=r"it has no implementation 'slwo'\. Fix: pass one of: slow, fast, incompatible"
    ):
        loader.load(ext_name="slwo")


def test_a_named_implementation_fails_with_one_kind_of_error() -> None:
    for bad in (Crashing, FailsToLoad, Broken):
        with pytest.raises(OpLoadError) as raised:
            _loader(bad, Fast).load(ext_name=bad.name)
        assert raised.value.__cause__ is not None or bad is FailsToLoad


def test_an_implementation_that_loads_nothing_is_not_chosen(caplog: pytest.LogCaptureFixture) -> None:
    class Nothing(Fast):
        name, priority = "nothing", 100

        def load(self) -> Any:
            return None

    assert _loader(Nothing, Fast).load() == "fast"
    assert "nothing: rejected, available, but loading 'nothing' failed: its load() returned None" in caplog.text
    with pytest.raises(NoKernelError, match=r"its load\(\) returned None"):
        _loader(Nothing).load()
    with pytest.raises(OpLoadError, match=r"its load\(\) returned None"):
        _loader(Nothing).load(ext_name="nothing")


def test_an_implementation_that_cannot_be_made_stops_no_other() -> None:
    class Unmade(Slow):
        name, priority = "unmade", 100

        def __init__(self) -> None:
            raise RuntimeError("no driver")

    loader = _loader(Unmade, Fast)
    type(loader).register_extension(Slow)
    assert loader.load() == "fast"
    assert loader.load("slow") == "slow"
    with pytest.raises(OpLoadError, match="'unmade' raised RuntimeError: no driver"):
        loader.load("unmade")


def test_an_instance_may_have_another_priority_than_its_class() -> None:
    class Raised(Slow):
        name = "raised"

        def __init__(self) -> None:
            self.priority = 100

    assert _loader(Fast, Raised).load() == "raised"


def test_a_loader_begins_with_the_implementations_of_its_base_class() -> None:
    base = type(_loader(Slow))

    class Further(base):  # type: ignore[valid-type, misc]
        pass

    Further.register_extension(Fast)
    assert Further().load() == "fast"
    assert base().load() == "slow"


def test_none_that_serves_says_of_each_why() -> None:
    with pytest.raises(
        NoKernelError, match=r"elsewhere: rejected, .*; incompatible: rejected|incompatible: rejected.*elsewhere"
    ):
        _loader(Elsewhere, Incompatible).load()


def test_registering_belongs_to_one_loader_and_replaces_a_namesake() -> None:
    loader, other = _loader(Slow), _loader(Slow)
    type(loader).register_extension(Fast)

    class Faster(Fast):
        def load(self) -> Any:
            return "faster"

    type(loader).register_extension(Faster)
    assert loader.load() == "faster"
    assert other.load() == "slow"
    assert [cls.name for cls in type(loader).REGISTRY] == ["slow", "fast"]
    for wrong, said in (
        (Faster(), "expected a subclass of KernelExtension"),
        (Abstract, "it does not define assert_compatible, is_available, load"),
        (Nameless, "it has no name"),
        (Unordered, "its priority is not an integer"),
    ):
        with pytest.raises(TypeError, match=said):
            type(loader).register_extension(wrong)
        with pytest.raises(TypeError, match=said):
            _loader(wrong)


def test_implementations_that_are_not_built_say_so() -> None:
    for build in (Slow().build_aot, Slow().build_jit):
        with pytest.raises(RuntimeError, match=r"building 'slow'.*Fix: call load\(\)"):
            build()


def test_adam_is_loaded_by_the_machines_own_name() -> None:
    op = CPUAdamLoader().load()
    import platform

    mine = "cpu_adam_x86" if platform.machine() == "x86_64" else "cpu_adam_arm"
    assert CPUAdamLoader().load(ext_name=mine) is op
    param = torch.ones(3)
    states = torch.zeros(3), torch.zeros(3)
    op.adam_step([param], [torch.ones(3)], [states[0]], [states[1]], [torch.zeros(())], lr=0.5)
    assert param.tolist() == [0.5] * 3


def test_adam_for_another_machine_is_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(NoKernelError, match=r"cpu_adam_x86: rejected.*cpu_adam_arm: rejected"):
        CPUAdamLoader().load()


def test_build_aot_gives_an_extension_for_setuptools() -> None:
    implementation = BuiltImplementation("cpu_adam_here", "CPUAdamBuilder", "cpu", lambda: True)
    extension = implementation.build_aot()
    assert extension.name == "anyaccel._C.cpu_adam"
    assert any(source.endswith("adam.cpp") for source in extension.sources)
    assert implementation.build_jit() is implementation.load()


def test_the_fused_optimizer_serves_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    assert hasattr(FusedOptimizerLoader().load(), "multi_tensor_adam")


@pytest.mark.parametrize("shape", [(1, 2, 5, 8), (2, 4, 7, 16)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_agrees_with_its_formula(shape: tuple[int, ...], is_causal: bool) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, *shape)
    scores = query @ key.transpose(-1, -2) / shape[-1] ** 0.5
    if is_causal:
        scores = scores.masked_fill(torch.ones(shape[2], shape[2]).triu(1).bool(), -torch.inf)
    expected = scores.softmax(-1) @ value
    torch.testing.assert_close(FlashAttentionLoader().load()(query, key, value, is_causal=is_causal), expected)


def test_attention_serves_a_group_of_queries_with_one_key() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(1, 4, 3, 8), torch.randn(1, 2, 3, 8), torch.randn(1, 2, 3, 8)
    attention = FlashAttentionLoader().load()
    wide = attention(query, key.repeat_interleave(2, 1), value.repeat_interleave(2, 1))
    torch.testing.assert_close(attention(query, key, value), wide)


def test_the_flash_attention_package_is_preferred_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels need a GPU; this test checks the layout of its arguments and the errors for its limits."""
    package = types.ModuleType("flash_attn")
    calls: list[dict[str, Any]] = []

    def flash_attn_func(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options: Any) -> torch.Tensor:
        calls.append(options)
        return query

    def flash_attn_varlen_func(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, starts: torch.Tensor, _: torch.Tensor,
        longest: int, __: int, **options: Any,
    ) -> torch.Tensor:  # fmt: skip
        calls.append({"rows": len(query), "starts": starts.tolist(), "longest": longest})
        return query

    package.flash_attn_func = flash_attn_func  # type: ignore[attr-defined]
    package.flash_attn_varlen_func = flash_attn_varlen_func  # type: ignore[attr-defined]
    package.__spec__ = types.SimpleNamespace(name="flash_attn")  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "flash_attn", package)
    from anyaccel.op_builder.colossalai.attention import FlashAttentionPackageExtension

    monkeypatch.setattr(FlashAttentionPackageExtension, "is_available", lambda _: True)
    attention = FlashAttentionLoader().load()
    query = torch.randn(1, 2, 3, 4)
    assert FlashAttentionDaoLoader().load().func is attention.func  # type: ignore[attr-defined]
    torch.testing.assert_close(attention(query, query, query, is_causal=True), query)
    assert calls == [{"dropout_p": 0.0, "softmax_scale": None, "causal": True}]
    kept, ends = torch.tensor([0, 1, 3]), torch.tensor([0, 2, 3], dtype=torch.int32)
    pair, padding = torch.randn(2, 2, 2, 4), torch.ones(2, 1, 2, 2)
    found = attention(pair, pair, pair, 0.0, None, padding, False, ends, ends, 2, 2, kept, kept)
    torch.testing.assert_close(found[0], pair[0])
    torch.testing.assert_close(found[1, :, 1], pair[1, :, 1])
    assert not found[1, :, 0].any()
    assert calls[1:] == [{"rows": 3, "starts": [0, 2, 3], "longest": 2}]
    with pytest.raises(NotImplementedError, match="flash-attn does not support attention_mask"):
        attention(query, query, query, attention_mask=torch.ones(3, 3))
    with pytest.raises(NotImplementedError, match="flash-attn does not support attn_mask"):
        attention(query, query, query, attn_mask=torch.ones(3, 3))


def test_attention_by_the_package_only_says_what_it_needs() -> None:
    with pytest.raises(NoKernelError, match="flash_attention_package"):
        FlashAttentionDaoLoader().load()


def test_a_loader_without_implementations_says_so() -> None:
    with pytest.raises(
        NoKernelError, match=r"Loader failed: it has no implementation. Fix: add one with Loader.register"
    ):
        _loader().load()


@pytest.mark.parametrize("loader", [one for one in LOADERS if one is not FlashAttentionDaoLoader])
def test_every_loader_loads_here(loader: type[KernelLoader]) -> None:
    assert len(LOADERS) == 22
    assert loader().load() is not None


@pytest.mark.parametrize("loader", [one for one in LOADERS if len(one.REGISTRY) > 4])
def test_every_kernel_is_registered_for_every_device(loader: type[KernelLoader]) -> None:
    names = [extension.name for extension in loader.REGISTRY]
    op = names[0].removesuffix("_cuda")
    assert names[:6] == [*(f"{op}_{kind}" for kind in ("cuda", "hip", "xpu", "x86", "arm")), "sycl"]
    lowest = min(loader.REGISTRY, key=lambda extension: extension.priority)
    assert lowest.name == "sycl"


def test_sycl_on_the_cpu_is_loaded_by_name() -> None:
    from anyaccel.op_builder.engine.toolchains.sycl import probe_dpcpp

    if probe_dpcpp().tool is None:
        with pytest.raises(NoKernelError, match="'sycl' does not run on this machine"):
            RMSNormLoader().load(ext_name="sycl")
        return
    by_sycl, native = RMSNormLoader().load(ext_name="sycl"), RMSNormLoader().load()
    assert by_sycl is not native
    x, weight = torch.randn(3, 8), torch.rand(8)
    torch.testing.assert_close(by_sycl.rms_norm(x, weight), native.rms_norm(x, weight))


@pytest.mark.parametrize("base", [CudaExtension, SyclExtension, TritonExtension])
def test_a_base_for_hardware_that_is_not_here_is_not_available(base: type[Any]) -> None:
    class Extension(base):
        name = "one"

        def builder(self) -> Any:
            pytest.fail("it is not asked")

        def load(self) -> Any:
            pytest.fail("it is not asked")

    present = {CudaExtension: torch.cuda.is_available(), SyclExtension: torch.xpu.is_available()}
    if present.get(base, torch.cuda.is_available()):
        pytest.skip("its hardware is here")
    assert not Extension().is_available()


def test_a_cpp_extension_of_a_third_party_needs_a_builder_only() -> None:
    class Adam(CppExtension):
        name = "third party's"

        def builder(self) -> Any:
            from anyaccel.op_builder.cpu import CPUAdamBuilder

            return CPUAdamBuilder()

    assert _loader(Adam).load() is CPUAdamLoader().functions()
