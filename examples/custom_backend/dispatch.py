"""One process group with two backends: CPU tensors use gloo, CUDA tensors use "dummy".

torchrun --nproc-per-node=2 dispatch.py
"""

import dummy_backend  # noqa: F401  # registers "dummy"
import torch
import torch.distributed as dist

dist.init_process_group("cpu:gloo,cuda:dummy")
on_cpu = torch.ones(3)
dist.all_reduce(on_cpu)
for device in ("cpu", "cuda"):
    print(f"{device}: {dist.group.WORLD._get_backend(torch.device(device)).name()}")
print(f"summed by gloo: {on_cpu.tolist()}")
if torch.cuda.is_available():
    on_gpu = torch.ones(3, device=f"cuda:{dist.get_rank() % torch.cuda.device_count()}")
    dist.all_reduce(on_gpu)
    print(f"zeroed by dummy: {on_gpu.tolist()}")

alone = dist.new_group(backend="cpu:dummy")
zeroed = torch.ones(3)
dist.all_reduce(zeroed, group=alone)
print(f"zeroed by dummy: {zeroed.tolist()}")
dist.destroy_process_group()
