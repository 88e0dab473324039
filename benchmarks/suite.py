"""The table of benchmarks: what each measures, how long it takes, and which columns of its results are compared."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SUITE", "Benchmark"]


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: ``bench_<topic>.py``, whose results are ``<topic>.json``.

    Attributes:
        topic: its name.
        about: what it measures, and against what.
        seconds: its run time on two cores, for estimates.
        label: the columns that identify a row.
        bars: the columns with times to draw next to each other, ours first; empty if rows are not comparable.
        needs: packages that it imports and that an installation may not have.
    """

    topic: str
    about: str
    seconds: int
    label: tuple[str, ...]
    bars: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


SUITE = (
    Benchmark("import", "import, and the first choice of an accelerator", 70, ("what",), (), ("deepspeed",)),
    Benchmark(
        "calls", "calls through get_accelerator()", 10, ("member",), ("ours ns", "direct ns", "deepspeed ns"),
        ("deepspeed",),
    ),
    Benchmark("first_call", "the first ops.rms_norm of a process", 120, ("what",), ("ours ms", "torch.compile ms")),
    Benchmark(
        "load", "CPUAdam from an empty and from a warm cache", 420, ("what",),
        ("ours s", "cpp_extension.load s", "deepspeed s"), ("deepspeed",),
    ),
    Benchmark("build", "building ops: processes, all of them, ziglang", 480, ("what",), (), ("ziglang",)),
    Benchmark(
        "device_build", "CUDA code by NVRTC and by nvcc", 240, ("what",), ("NVRTC s", "nvcc s"), ("cuda.bindings",),
    ),
    Benchmark(
        "adam", "CPUAdam's step", 80, ("parameters",), ("ours ms", "torch fused ms", "deepspeed ms"), ("deepspeed",),
    ),
    Benchmark(
        "optimizers", "a step of every optimizer", 80, ("optimizer", "peer"), ("ours ms", "peer ms"), ("deepspeed",),
    ),
    Benchmark(
        "async_io", "a tensor to a file and back", 20, ("way", "candidate"), ("MB/s",), ("deepspeed",),
    ),
    Benchmark(
        "kernels", "forward and backward of every kernel", 90, ("kernel", "shape"), ("ours ms", "eager ms", "compile ms"),
    ),
    Benchmark(
        "bandwidth", "the share of the copy bandwidth, in two dtypes", 600, ("kernel", "dtype", "shape"),
        ("ours ms", "eager ms", "compile ms"),
    ),
    Benchmark("host", "the host's cost of calls on 64 elements", 20, ("call",), ("ours µs", "torch µs")),
    Benchmark("quantization", "quantizing and back", 15, ("kind",)),
    Benchmark(
        "dense", "the layer Dense in its modes", 50, ("rows",), ("default ms", "cpp ms", "py ms", "eager ms", "compile ms"),
    ),
    Benchmark("comm", "shm against gloo", 420, ("ranks", "operation"), ("shm µs", "gloo µs")),
    Benchmark(
        "ring", "a ring of messages", 30, ("ranks",),
        ("ring over shm ms", "ring over gloo ms", "gloo's all_reduce ms"),
    ),
    Benchmark("sycl", "SYCL code on the CPU", 90, ("cache",)),
    Benchmark("migrate", "anyaccel check on 100 000 lines", 40, ("code",)),
    Benchmark(
        "deepspeed", "deepspeed.initialize and its steps", 330, ("what",), ("ours s", "stock s"), ("deepspeed",),
    ),
)  # fmt: skip
"""In the order in which they run."""
