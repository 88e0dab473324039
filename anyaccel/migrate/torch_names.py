"""The members of ``torch.cuda``: their names in the contract, their rules, and advice where there is no such name."""

from __future__ import annotations

__all__ = ["ADVICE", "CLASSES", "INDEXED", "MEMBERS", "PROMISED", "QUESTIONS", "RULE_OF"]

_SAME = [
    "is_available",
    "is_initialized",
    "device_count",
    "synchronize",
    "manual_seed",
    "manual_seed_all",
    "initial_seed",
    "empty_cache",
    "memory_allocated",
    "max_memory_allocated",
    "reset_max_memory_allocated",
    "memory_cached",
    "max_memory_cached",
    "reset_max_memory_cached",
    "memory_stats",
    "reset_peak_memory_stats",
    "memory_reserved",
    "max_memory_reserved",
    "mem_get_info",
    "get_device_properties",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "current_stream",
    "default_stream",
    "stream",
    "set_stream",
    "Stream",
    "Event",
    "set_rng_state_all",
    "seed",
    "seed_all",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "can_device_access_peer",
    "graph_pool_handle",
    "make_graphed_callables",
    "utilization",
]
MEMBERS = {
    **{name: name for name in _SAME},
    "CUDAGraph": "create_graph",
    "graph": "capture_to_graph",
    "nvtx.range_push": "range_push",
    "nvtx.range_pop": "range_pop",
    "_lazy_call": "lazy_call",
}
INDEXED = {"set_device": ("set_device", 0), "device": ("device_guard", 0), "get_rng_state": ("get_rng_state", 0)}
INDEXED["set_rng_state"] = ("set_rng_state", 1)
QUESTIONS = ("is_available", "is_initialized", "is_bf16_supported", "device_count")
CLASSES = ("Stream", "Event", "CUDAGraph", "graph", "device")
_GROUPS = {
    "streams": [
        "device_of",
        "synchronize",
        "current_stream",
        "default_stream",
        "stream",
        "set_stream",
        "Stream",
        "Event",
        "device",
        "StreamContext",
    ],
    "graphs": ["CUDAGraph", "graph", "is_current_stream_capturing", "make_graphed_callables", "graph_pool_handle"],
    "rng": [
        "manual_seed",
        "manual_seed_all",
        "initial_seed",
        "get_rng_state",
        "set_rng_state",
        "get_rng_state_all",
        "set_rng_state_all",
        "seed",
        "seed_all",
        "default_generators",
    ],
    "current-device": ["current_device"],
}
RULE_OF = {name: rule for rule, names in _GROUPS.items() for name in names}
PROMISED = ("name", "total_memory", "get", "items", "keys", "values")
ADVICE = {
    "get_device_capability": "compute capability is specific to CUDA; check for the feature, for example is_bf16_supported()",
    "is_bf16_supported": "get_accelerator().is_bf16_supported() takes no arguments; decide whether emulation counts",
    "init": "the accelerator initializes itself on first use; remove the call",
    "ipc_collect": "specific to CUDA; call it only if get_accelerator().device_name() is 'cuda'",
    "set_per_process_memory_fraction": "a CPU has no such limit; check get_accelerator().supports() first",
    "get_arch_list": "CUDA's architectures; get_accelerator().get_arch_list() has the names of each device's",
    **dict.fromkeys(
        ("get_per_process_memory_fraction", "memory_snapshot", "MemPool", "use_mem_pool"),
        "get_accelerator() has the same name, but not for a CPU; check get_accelerator().supports() first",
    ),
    "nccl.version": "use get_accelerator().communication_backend_version()",
}
