"""The builder of C++ ops for the CPU."""

from __future__ import annotations

from ..builder import OpBuilder

__all__ = ["CPUOpBuilder"]


class CPUOpBuilder(OpBuilder):
    """Builds C++ for the CPU it runs on."""

    def cxx_args(self) -> list[str]:
        """Return flags for the fastest code that keeps IEEE results: no trap and no errno, hence vector square roots."""
        return ["-O3", "-std=c++20", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wextra"]
