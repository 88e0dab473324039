"""If it is in PYTHONPATH, every new Python process runs deepspeed on anyaccel."""

import anyaccel.integrations.deepspeed  # noqa: F401
