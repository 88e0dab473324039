"""deepspeed on our accelerator and our ops.

Import this before deepspeed::

    import anyaccel.integrations.deepspeed
    import deepspeed

``deepspeed.accelerator.get_accelerator()`` is then :func:`anyaccel.get_accelerator`, and deepspeed's optimizers run on the
kernels here; what is not here comes from deepspeed's own builders. A program that must not be edited is run by
``python -m anyaccel.integrations.deepspeed train.py``.
"""

from __future__ import annotations

from .installation import install

__all__ = ["install"]

install()
