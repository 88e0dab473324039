"""Random modules of functions that ask for CUDA in many ways, and use devices, tensors and settings under the answers."""

from __future__ import annotations

from random import Random

__all__ = ["random_module"]

_HEAD = """import argparse
import logging
import os

import torch
import torch.distributed as dist

log = logging.getLogger(__name__)
"""
_SHARED = {
    "HAS": "HAS = torch.cuda.is_available()\n",
    "DEVICE": 'DEVICE = "cuda" if torch.cuda.is_available() else "cpu"\n',
    "COUNT": "COUNT = torch.cuda.device_count()\n",
    "has_gpu(": "\n\ndef has_gpu():\n    return torch.cuda.is_available()\n",
    "Settings(": "\n\nclass Settings:\n    def __init__(self):\n        self.use = torch.cuda.is_available()\n",
}
_QUESTIONS = (
    "torch.cuda.is_available()",
    "not torch.cuda.is_available()",
    "torch.cuda.device_count() > 0",
    "torch.cuda.device_count() > 1",
    "torch.cuda.device_count() == 0",
    "HAS",
    "not HAS",
    "has_gpu()",
    "COUNT",
    "COUNT > 1",
    "DEVICE == 'cuda'",
    "DEVICE != 'cpu'",
    "x.is_cuda",
    "not x.is_cuda",
    "x.device.type == 'cuda'",
    "x.device.type != 'cuda'",
    "'cuda' in str(x.device)",
    "device == 'cuda'",
    "flag and torch.cuda.is_available()",
    "torch.cuda.is_available() and flag",
    "flag or torch.cuda.is_available()",
    "torch.cuda.is_available() and not flag",
    "not (flag and torch.cuda.is_available())",
    "not torch.cuda.is_available() or flag",
    "torch.cuda.is_available() is True",
    "bool(torch.cuda.is_available())",
    "torch.cuda.is_available() == flag",
    "flag == torch.cuda.is_available()",
    "Settings().use",
    "device.type == 'cuda'",
    "device.startswith('cuda')",
    "device == 'cuda' and torch.cuda.is_available()",
    "device == 'cuda' and not torch.cuda.is_available()",
    "torch.cuda.is_available() and x.is_cuda",
    "x.is_cuda and flag",
)
_USES = (
    "x = x.cuda()",
    "x = x.to('cuda')",
    "x = x.to(DEVICE)",
    "x = x.to(device)",
    "x = x.cuda(non_blocking=True)",
    "y = torch.ones(2, device='cuda')",
    "y = torch.ones(2, device=DEVICE)",
    "torch.cuda.synchronize()",
    "torch.cuda.empty_cache()",
    "torch.cuda.manual_seed_all(1)",
    "torch.cuda.set_device(0)",
    "x = x.pin_memory()",
    "x = x.half()",
    "x = launch(x).cuda()",
    "x = x.to(device, non_blocking=True)",
    "x = x.to(options.device)",
    "torch.cuda.set_device(rank)",
    "torch.backends.cudnn.benchmark = True",
    "torch.cuda.reset_peak_memory_stats()",
    "x = x * 2",
    "x = x + 1",
    "y = launch(x)",
    "y = launch(x, HAS)",
    "y = launch(x, device=DEVICE)",
    "workers = 4",
    "y = torch.cuda.memory_allocated()",
    "y = torch.cuda.get_device_capability()",
    "y = torch.cuda.get_device_name(0)",
    "log.info('CUDA is used')",
    "print('CUDA is not available')",
    "flag = True",
    "flag = torch.cuda.is_available()",
    "device = 'cuda'",
    "device = 'cpu'",
    "options['fused'] = True",
    "options['pin_memory'] = torch.cuda.is_available()",
    "backend = 'nccl'",
    "backend = 'gloo'",
    "dist.init_process_group('nccl' if torch.cuda.is_available() else 'gloo')",
    "scaler = torch.cuda.amp.GradScaler(enabled=flag)",
    "world = max(1, torch.cuda.device_count())",
    "rank = launch(0) % max(1, COUNT)",
)
_CONDITIONAL = (
    "x.cuda()",
    "x",
    "x.to('cuda')",
    "'cuda'",
    "'cpu'",
    "None",
    "4",
    "launch(x)",
    "torch.float16",
    "torch.float32",
)
_LEAVES = (
    "return x",
    "return None",
    "return launch(x)",
    "raise RuntimeError('CUDA is required')",
    "raise ValueError('no')",
)


def random_module(seed: int, functions: int = 3) -> str:
    """Return the source of a module with up to three functions; every other one is a program."""
    random = Random(seed)  # noqa: S311
    names = ["step", "prepare", random.choice(("main", "train", "run"))][-functions:]
    code = "".join(_function(random, name) for name in names)
    shared = "".join(text for name, text in _SHARED.items() if name in code)
    end = (
        f'if __name__ == "__main__":\n    {names[-1]}(x, flag, device, options, launch)\n'
        if random.random() < 0.5
        else ""
    )
    return f"{_HEAD}{shared}\n\n{code}{end}"


def _function(random: Random, name: str) -> str:
    body = [*_block(random, 2), random.choice(_LEAVES[:3])]
    return "\n".join([f"def {name}(x, flag, device, options, launch):", *(f"    {line}" for line in body), "", "", ""])


def _block(random: Random, depth: int) -> list[str]:
    return [line for _ in range(random.randint(1, 3)) for line in _statement(random, depth)]


def _statement(random: Random, depth: int) -> list[str]:
    question = random.choice(_QUESTIONS)
    kind = random.choice(
        ("use", "use", "if", "if", "else", "leave", "choice", "assert", "stored", "for", "try")
        if depth
        else ("use", "choice")
    )
    if kind == "use":
        return [random.choice(_USES)]
    if kind == "choice":
        one, other = random.sample(_CONDITIONAL, 2)
        return [f"y = {one} if {question} else {other}"]
    if kind == "assert":
        return [f"assert {question}, 'CUDA is needed'"]
    if kind == "stored":
        return [f"found = {question}", "if found:", *_inner(random, depth)]
    if kind == "for":
        return [
            f"for i in range({random.choice(('2', 'COUNT', 'torch.cuda.device_count()'))}):",
            *_inner(random, depth),
        ]
    if kind == "try":
        return ["try:", *_inner(random, depth), "except ImportError:", "    y = None"]
    if kind == "leave":
        return [f"if {question}:", f"    {random.choice(_LEAVES)}"]
    lines = [f"if {question}:", *_inner(random, depth)]
    return [*lines, "else:", *_inner(random, depth)] if kind == "else" else lines


def _inner(random: Random, depth: int) -> list[str]:
    return [f"    {line}" for line in _block(random, depth - 1)]
