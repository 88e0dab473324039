"""The process-group backend ``shm``, which importing this registers with ``torch.distributed``.

>>> import anyaccel.distributed
>>> dist.init_process_group("shm")  # or "cpu:shm,cuda:nccl"
"""

from __future__ import annotations

from .ring import RingError, ring_all_reduce
from .shm import BACKEND_NAME, monitored_barrier, register

__all__ = ["BACKEND_NAME", "RingError", "monitored_barrier", "register", "ring_all_reduce"]

register()
