"""deepspeed on our accelerator and our ops.

Import this before deepspeed::

    import anyaccel.integrations.deepspeed
    import deepspeed

``deepspeed.accelerator.get_accelerator()`` is then :func:`anyaccel.get_accelerator`, and deepspeed's optimizers run on the
kernels here; functions that are missing here come from deepspeed's own builders; :func:`served_ops` tells whose op is used. To
run a program without editing it, use ``torchrun -m anyaccel.integrations.deepspeed train.py``.
"""

from __future__ import annotations

from .installation import install
from .served import ServedOp, served_ops

__all__ = ["ServedOp", "install", "served_ops"]

install()
