"""In PYTHONPATH, this puts deepspeed on anyaccel in every Python process that is started, whatever starts it."""

import anyaccel.integrations.deepspeed  # noqa: F401
