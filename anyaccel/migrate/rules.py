"""The rules by id, for the command line, SARIF and the documentation."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RULES", "Rule"]


@dataclass(frozen=True)
class Rule:
    """A rule.

    Attributes:
        title: what the rule is about, in a few words.
        before: code that it rewrites, on one line.
        after: the code after the rewrite.
        others: what it reports or leaves, and why.
    """

    title: str
    before: str
    after: str
    others: str


RULES: dict[str, Rule] = {
    "runtime-call": Rule(
        "functions of torch.cuda that the contract has",
        "torch.cuda.empty_cache()",
        "get_accelerator().empty_cache()",
        "`is_available()` is true on a CPU as well: where a CPU must not take CUDA's branch, the question becomes "
        '`get_accelerator().device_name() != "cpu"`, and a number of devices stays 0. It is reported if something under it '
        "stays CUDA's. `get_device_capability()` and what only CUDA has are reported.",
    ),
    "device-name": Rule(
        "a CUDA device by name, where a device is meant",
        'x.to("cuda"); torch.device(f"cuda:{i}"); model.to(local_rank)',
        "x.to(get_accelerator().device_name()); torch.device(get_accelerator().device_name(i)); "
        "model.to(get_accelerator().device_name(local_rank))",
        "Every way of formatting a name is understood or reported. A comparison (`device.type == 'cuda'`) is rewritten; "
        '`!= "cpu"` is added to it unless what depends on it changes nothing on a CPU: pinned memory, copies. '
        "`'cuda' if 'cuda' in device else 'cpu'` becomes `torch.device(device).type`. A setting called `device` stays a text, "
        "also in a class, in a dictionary, and in a program that reads its globals back. Reported: one device of several by its "
        "number, devices that are told apart, options whose choices lack the CPU or are several accelerators, and names that are "
        "also used for something else. A list of allowed devices that only refuses others also gets the accelerator's name. "
        "Left: what runs only under a reported comparison, the keys of `map_location`, and the names of implementations "
        "(`impl='cuda'`).",
    ),
    "device-choice": Rule(
        "a choice between CUDA and the CPU",
        'device = "cuda" if torch.cuda.is_available() else "cpu"',
        "device = get_accelerator().device_name()",
        "Also as an if/else statement, with `torch.device`, and with MPS or XPU as a third. A choice that asks something else, "
        "too, keeps its question, and only the name in it is rewritten.",
    ),
    "current-device": Rule(
        "the current device, as an index or as a device",
        "x.to(torch.cuda.current_device())",
        "x.to(get_accelerator().current_device_name())",
        "`current_device()` where an index is meant. If that is not clear, it is reported.",
    ),
    "tensor-cuda": Rule(
        "tensors and modules that move by cuda()",
        "x.cuda(i, non_blocking=True)",
        "x.to(get_accelerator().device_name(i), non_blocking=True)",
        "A device that is given is passed through: `.cuda(device)` becomes `.to(device)`. What may be an index, a device or None "
        "goes through `device_name()`, which takes all three. Reported: calls that may be of a class with its own `cuda()`, and "
        "such a class, unless it has a `to()`, too.",
    ),
    "is-cuda": Rule(
        "asking whether a tensor is on the device",
        "x = x.cuda() if t.is_cuda else x",
        "x = x.to(get_accelerator().device_name()) if get_accelerator().on_accelerator(t) else x",
        'Where a CPU must not take CUDA\'s branch, `and get_accelerator().device_name() != "cpu"` follows. A guard before a '
        "kernel (an assertion, a test that raises) is reported; an `is_cuda` that a class sets itself is left.",
    ),
    "pinning": Rule(
        "page-locked memory",
        "batch = batch.pin_memory()",
        "batch = get_accelerator().pin_memory(batch)",
        "`torch.empty(n, dtype=t, pin_memory=True)` becomes `get_accelerator().pin_empty(n, dtype=t)`; other functions that "
        "make pinned tensors are wrapped, also with `pin_memory=torch.cuda.is_available()`; what pins by a condition that "
        "is not about CUDA is reported. `CPUOffloadPolicy(pin_memory=…)` is false on a CPU. `True` for a DataLoader and for "
        "`save_on_cpu()` stays: torch ignores it without a device. A question about CUDA there is false on a CPU.",
    ),
    "comm-backend": Rule(
        "NCCL as the backend of a process group",
        'dist.init_process_group("nccl")',
        "dist.init_process_group(get_accelerator().communication_backend_name())",
        "Also `dist.Backend.NCCL`, and the default of a `--backend` option without choices. So are parameters and "
        'settings that are named after a group\'s backend, `deepspeed.init_distributed()`, `"cpu:gloo,cuda:nccl"` where a '
        "question has found CUDA, and comparisons with `get_backend()`. A CPU answers those with no unless all that "
        "depends on them is rewritten. Other comparisons, and choices of options, are reported; a table of backends by "
        "device is left.",
    ),
    "device-ids": Rule(
        "the devices that DistributedDataParallel gets",
        "DDP(model, device_ids=[rank])",
        'DDP(model, device_ids=None if get_accelerator().device_name() == "cpu" else [rank])',
        "DDP refuses `device_ids` for a module on the CPU.",
    ),
    "amp": Rule(
        "mixed precision by torch.cuda.amp",
        "with torch.cuda.amp.autocast(use_amp): pass",
        "with torch.amp.autocast(get_accelerator().device_name(), "
        'enabled=use_amp and get_accelerator().device_name() != "cpu"): pass',
        "On a CPU it is switched off, as CUDA's was. `GradScaler`, `custom_fwd`, `custom_bwd` and `partial(autocast, "
        '"cuda")` too, and `amp.autocast()` in a function to which this file passes the module. Imports move to '
        "`torch.amp` when every use has. Left: what is for a torch without `torch.amp`, beside code for newer ones.",
    ),
    "half": Rule(
        "models that are kept in float16 without asking",
        "",
        "",
        "`model.half()` and `torch_dtype=torch.float16` in a module that is ported are reported, unless a test around them asks "
        "for the precision or the device, or the function is named after it: a CPU computes in float16 slowly or not at all.",
    ),
    "streams": Rule(
        "streams, events and the device guard",
        "with torch.cuda.stream(s): pass",
        "with get_accelerator().stream(s): pass",
        "`torch.cuda.device(i)` becomes `device_guard(i)`, which takes an index or a device. Annotations "
        "become `torch.Stream` and `torch.Event`; `isinstance(x, torch.cuda.Event)` tests for the accelerator's class; "
        "`x.record_stream(s)` becomes `get_accelerator().record_stream(x, s)`.",
    ),
    "typed-tensor": Rule(
        "tensor types of torch.cuda, such as FloatTensor",
        "x.type(torch.cuda.FloatTensor)",
        "x.to(get_accelerator().device_name(), torch.float32)",
        "Constructions become `torch.empty`, `torch.tensor` or, where the argument's kind cannot be seen, "
        "`get_accelerator().FloatTensor(...)`; tests become tests of dtype and device, or, beside a test for the CPU's "
        "type, of the accelerator's; a name for a type is rewritten with all of its uses, or reported.",
    ),
    "graphs": Rule(
        "CUDA graphs",
        "with torch.cuda.graph(g): pass",
        "with get_accelerator().capture_to_graph(g): pass",
        "`torch.cuda.CUDAGraph()` becomes `create_graph()`, which raises where a device has no graphs.",
    ),
    "nvtx": Rule(
        "ranges of a profile",
        'torch.cuda.nvtx.range_push("forward")',
        'get_accelerator().range_push("forward")',
        "`nvtx.range` and `nvtx.mark` are reported.",
    ),
    "rng": Rule(
        "random number generators",
        "torch.cuda.default_generators[0]",
        "get_accelerator().default_generator(0)",
        "Without CUDA, `set_rng_state(state)` did nothing: in a module that reads no state by `get_rng_state()`, it stays behind "
        '`if get_accelerator().device_name() != "cpu":`, as a state from CUDA fits no other generator. So does a '
        "seed that torch itself does not get there. `fork_rng(devices=…)` and `set_device_states(…)` get `device_type=`, "
        "the fork if no devices are an empty list there; otherwise it is reported.",
    ),
    "memory": Rule(
        "memory statistics",
        "torch.cuda.reset_peak_memory_stats()",
        "get_accelerator().reset_peak_memory_stats()",
        "Snapshots and histories are CUDA's own, and reported. A figure that is read without a test for CUDA before it stays 0 "
        "on a CPU.",
    ),
    "op-builder": Rule(
        "deepspeed's builders of ops",
        "from deepspeed.ops.op_builder import CPUAdamBuilder; ops = CPUAdamBuilder().load()",
        'ops = get_accelerator().create_op_builder("CPUAdamBuilder").load()',
        "deepspeed's own class does the same with its accelerator. Classes that are not called without arguments are left.",
    ),
    "env": Rule(
        "what exists for CUDA only",
        "",
        "",
        "`CUDA_VISIBLE_DEVICES`, cuDNN's and TF32's switches, and texts that only contain the word are left; texts that name "
        "`torch.cuda`, the profiler's activity and `CUDAExtension` are reported. A profiler's list of both activities becomes "
        "`torch.profiler.supported_activities()`. Left as well: kernels of CUDA's beside code for other devices, and what only "
        "CUDA has, where a condition asks for CUDA; what `is_cuda_available()` returns; messages about CUDA.",
    ),
    "message": Rule(
        "what messages and docstrings call the device",
        'print("CUDA memory:", torch.cuda.memory_summary())',
        'print("Accelerator memory:", get_accelerator().memory_summary())',
        "In messages that hold a rewritten place, stand before a rewritten call about the memory, or are shown only if a "
        "rewritten question is true; and in docstrings of functions and classes in which everything is rewritten. Only "
        "phrases such as `CUDA memory`, `CUDA devices` and `using CUDA`; and in errors and messages for a machine without an "
        "accelerator, unless a test expects the text, what says that CUDA is missing or required. Comments, keys, and names of "
        "figures stay.",
    ),
    "imports": Rule(
        "imports of torch.cuda",
        "from torch.cuda import Event",
        "",
        "Dropped when nothing uses them any longer.",
    ),
}
