"""Python fronts of the kernels, in the manner of ``torch.nn`` and ``torch.optim``."""

from .adam import CPUAdam

__all__ = ["CPUAdam"]
