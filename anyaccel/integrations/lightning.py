"""Any accelerator as one of Lightning's: ``Trainer(accelerator=register())``.

Lightning knows the CPU, CUDA, MPS and XLA. For a single device of any other kind, it would train on the CPU, and its mixed
precision would be CUDA's; what is registered here corrects both.
"""

from __future__ import annotations

import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any, ClassVar

from ..accelerator.errors import SelectionError

if TYPE_CHECKING:
    import torch

    from ..accelerator import DeepSpeedAccelerator

__all__ = ["register"]

# What a package of Lightning calls its registry, the class that reads its arguments, and the precision given by the user.
_FABRIC = ("ACCELERATOR_REGISTRY", "connector", "_Connector", "_precision_instance")
_TRAINER = (
    "AcceleratorRegistry",
    "trainer.connectors.accelerator_connector",
    "_AcceleratorConnector",
    "_precision_plugin_flag",
)
_PACKAGES = {
    "lightning.fabric": _FABRIC,
    "lightning.pytorch": _TRAINER,
    "lightning_fabric": _FABRIC,
    "pytorch_lightning": _TRAINER,
}


def register(accelerator: DeepSpeedAccelerator | None = None) -> str:
    """Register an accelerator with Lightning's ``Trainer`` and ``Fabric``, for programs with one device.

    Import Lightning first, as ``lightning``, ``pytorch_lightning`` or ``lightning_fabric``. An accelerator that Lightning has
    itself, such as ``"cpu"`` or ``"cuda"``, remains Lightning's. Several devices need a ``strategy=`` made for them, because
    Lightning's DDP uses CUDA's streams.

    Args:
        accelerator: the accelerator; None means the result of ``get_accelerator()``.

    Returns:
        Its name, such as ``"xpu"``, which ``Trainer(accelerator=...)`` and ``Fabric(accelerator=...)`` accept from now on.

    Raises:
        SelectionError: when no package of Lightning has been imported, or its version is unknown here.
    """
    if accelerator is None:
        from .. import get_accelerator

        accelerator = get_accelerator()
    name = accelerator.device_name()
    packages = [package for package in _PACKAGES if package in sys.modules]
    if not packages:
        msg = (
            f"registering '{name}' with Lightning failed: none of {', '.join(_PACKAGES)} is imported. "
            f"Fix: import Lightning before calling register()."
        )
        raise SelectionError(msg)
    for package in packages:
        _register(package, accelerator)
    return name


class _Members:
    """What Lightning asks an accelerator for; it asks the class."""

    serves: ClassVar[DeepSpeedAccelerator]
    package: ClassVar[str]

    def __reduce__(self) -> tuple[Any, ...]:  # for strategies that start processes by spawning
        return _made_again, (self.package, self.serves)

    @classmethod
    def name(cls) -> str:
        return cls.serves.device_name()

    @classmethod
    def is_available(cls) -> bool:
        return cls.serves.is_available()

    @classmethod
    def auto_device_count(cls) -> int:
        return cls.serves.device_count()

    @classmethod
    def parse_devices(cls, devices: int | str | list[int]) -> list[int]:
        """Return the indices that ``devices`` means: a number of devices, ``-1`` for all, or indices as ``[0]`` or ``"0,1"``."""
        count = cls.serves.device_count()
        try:
            indices = _indices(devices, count)
        except (TypeError, ValueError):
            indices = []
        if not indices or len(set(indices)) < len(indices) or not all(0 <= index < count for index in indices):
            msg = (
                f"choosing devices failed: got devices={devices!r}; expected a number of devices or their indices, and "
                f"'{cls.name()}' has {count} here. Fix: pass devices=1, or the index of one, as in devices=[0]."
            )
            raise SelectionError(msg)
        return indices

    @classmethod
    def get_parallel_devices(cls, devices: list[int]) -> list[torch.device]:
        return [cls.serves.device(index) for index in devices]

    def setup_device(self, device: torch.device) -> None:
        if device.type != self.name():
            msg = (
                f"preparing a device failed: got '{device}' from Lightning's strategy; expected a '{self.name()}' device. "
                f"Fix: create the strategy for it, for example SingleDeviceStrategy(device='{self.name()}:0')."
            )
            raise SelectionError(msg)
        self.serves.set_device(device)

    def get_device_stats(self, device: Any) -> dict[str, Any]:
        import torch

        if not self.serves.supports("memory_stats"):
            return {}
        return dict(self.serves.memory_stats(torch.device(device).index))

    def teardown(self) -> None:
        if self.serves.supports("empty_cache"):
            self.serves.empty_cache()


def _indices(devices: int | str | list[int], count: int) -> list[int]:
    if isinstance(devices, str):
        given = [int(index) for index in devices.split(",") if index.strip()]
        devices = given if "," in devices else given[0] if given else 0
    if isinstance(devices, int):
        return list(range(count if devices == -1 else devices))
    if any(isinstance(index, bool) or not isinstance(index, int | str) for index in devices):
        raise TypeError(devices)
    return [int(index) for index in devices]


def _made_again(package: str, accelerator: DeepSpeedAccelerator) -> Any:
    importlib.import_module(package)
    return _register(package, accelerator).get(accelerator.device_name())


def _register(package: str, accelerator: DeepSpeedAccelerator) -> Any:
    registry_name, module, connector_name, given = _PACKAGES[package]
    accelerators = importlib.import_module(f"{package}.accelerators")
    try:
        registry = getattr(accelerators, registry_name)
        connector = getattr(importlib.import_module(f"{package}.{module}"), connector_name)
        methods = connector._choose_strategy, connector._check_and_init_precision
    except (AttributeError, ImportError) as error:
        version = getattr(sys.modules[package.partition(".")[0]], "__version__", "unknown")
        msg = (
            f"registering '{accelerator.device_name()}' with {package} failed: its version {version} is unknown here "
            f"({error}). Fix: pip install 'lightning==2.6.*'."
        )
        raise SelectionError(msg) from error
    name = accelerator.device_name()
    if name not in registry or issubclass(registry[name]["accelerator"], _Members):
        members = {"serves": accelerator, "package": package}
        made = type(f"{name.upper()}Accelerator", (_Members, accelerators.Accelerator), members)
        registry.register(name, made, description=f"anyaccel's {type(accelerator).__name__}", override=True)
        if not hasattr(connector, "_anyaccel_is_here"):  # others may have wrapped the methods, too
            connector._anyaccel_is_here = True
            connector._choose_strategy = _with_device(package, methods[0])
            connector._check_and_init_precision = _with_autocast(package, methods[1], given)
    return registry


def _with_device(package: str, choose: Any) -> Any:
    """Wrap the choice of a strategy: Lightning gives one device of an unknown accelerator the CPU."""

    @functools.wraps(choose)
    def chosen(connector: Any) -> Any:
        strategy = choose(connector)
        if not isinstance(connector.accelerator, _Members):
            return strategy
        if isinstance(strategy, str):  # a strategy for several devices: each makes a stream of torch.cuda
            count = len(connector._parallel_devices)
            several = f"{count} devices" if count > 1 else "several nodes with a device each"
            fix = "pass devices=1" if count > 1 else "pass num_nodes=1"
            msg = (
                f"choosing Lightning's strategy failed: got {several} of '{connector.accelerator.name()}'; its "
                f"'{strategy}' needs CUDA's streams. Fix: {fix}, or a strategy= made for this device."
            )
            raise SelectionError(msg)
        (device,) = connector._parallel_devices
        return importlib.import_module(f"{package}.strategies").SingleDeviceStrategy(device=device)

    return chosen


def _with_autocast(package: str, check: Any, given: str) -> Any:
    """Wrap the choice of a precision: Lightning's mixed precision is CUDA's on accelerators that it does not know."""

    @functools.wraps(check)
    def checked(connector: Any) -> Any:
        precision = check(connector)
        mixed = importlib.import_module(f"{package}.plugins.precision").MixedPrecision
        is_ours = isinstance(connector.accelerator, _Members) and precision is not getattr(connector, given)
        if is_ours and isinstance(precision, mixed):
            return mixed(precision.precision, connector.accelerator.name())
        return precision

    return checked
