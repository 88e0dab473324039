"""The builders of the CPU, which serve every accelerator whose host runs them."""

from .cpu_adam import CPUAdamBuilder

__all__ = ["CPUAdamBuilder"]
