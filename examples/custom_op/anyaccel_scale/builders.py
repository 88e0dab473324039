"""The builders, written as for deepspeed; only the import names anyaccel."""

import os

from anyaccel.op_builder import CPUOpBuilder, CUDAOpBuilder

CSRC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "csrc")


class ScaleBuilder(CPUOpBuilder):
    BUILD_VAR = "DS_BUILD_SCALE"
    NAME = "scale"

    def __init__(self):
        super().__init__(name=self.NAME)

    def absolute_name(self):
        return f"anyaccel_scale.{self.NAME}_op"

    def sources(self):
        return [os.path.join(CSRC, "scale.cpp")]

    def include_paths(self):
        return [CSRC]

    def cxx_args(self):
        return [*super().cxx_args(), *self.version_dependent_macros()]


class CUDAScaleBuilder(CUDAOpBuilder):
    BUILD_VAR = "DS_BUILD_SCALE_CUDA"
    NAME = "scale_cuda"

    def __init__(self):
        super().__init__(name=self.NAME)

    def absolute_name(self):
        return f"anyaccel_scale.{self.NAME}_op"

    def sources(self):
        return [os.path.join(CSRC, "scale.cpp"), os.path.join(CSRC, "scale_cuda.cu")]

    def include_paths(self):
        return [CSRC]

    def cxx_args(self):
        return [*super().cxx_args(), "-DWITH_CUDA"]

    def nvcc_args(self):
        return ["-O3", "--use_fast_math", "-lineinfo", *self.compute_capability_args()]
