"""Data-parallel training with a ring all-reduce: ``distributed.py -m cpp --nproc 2 --backend shm``.

A ring of messages sums every gradient; the result is compared with ``dist.all_reduce``.
"""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from modes import parser, require

from anyaccel.distributed import ring_all_reduce
from anyaccel.ops import Dense

STEPS = 40


def train(rank, world, chosen, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    device = require(chosen.mode)
    if device == "cuda":
        device = f"cuda:{rank}"
    dist.init_process_group(chosen.backend, rank=rank, world_size=world)
    torch.manual_seed(0)  # the same weights in every process
    model = torch.nn.Sequential(
        Dense(16, 64, mode=chosen.mode, device=device), Dense(64, 1, mode=chosen.mode, device=device)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    data = torch.Generator().manual_seed(rank + 1)
    for step in range(STEPS):
        x = torch.rand(256, 16, generator=data).to(device)
        target = (x.sum(1, keepdim=True) > 8).float()
        loss = (model(x) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            expected = parameter.grad.clone()
            dist.all_reduce(expected)
            ring_all_reduce(parameter.grad)
            torch.testing.assert_close(parameter.grad, expected)
            parameter.grad /= world
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if rank == 0 and step % 10 == 9:
            print(f"step {step + 1}: loss {total.item() / world:.4f}", flush=True)
    dist.destroy_process_group()


def main():
    arguments = parser(__doc__)
    arguments.add_argument("--nproc", type=int, default=2, help="ranks")
    arguments.add_argument("--backend", default="gloo", help="gloo, shm, nccl or xccl")
    chosen = arguments.parse_args()
    require(chosen.mode)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(train, (chosen.nproc, chosen, port), chosen.nproc)
    print("the ring agreed with all_reduce in every step")


if __name__ == "__main__":
    main()
