"""These tests must not use a model hub or send telemetry."""

import contextlib
import os
import sys
from pathlib import Path

os.environ.update(
    ACCELERATE_USE_CPU="true", DS_ACCELERATOR="cpu", HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_OFFLINE="1",
    TOKENIZERS_PARALLELISM="false", TRANSFORMERS_OFFLINE="1",
)  # fmt: skip

_path = sys.path[:]
sys.path[:] = [folder for folder in _path if Path(folder).resolve() != Path(__file__).parents[2]]
with contextlib.suppress(
    ModuleNotFoundError
):  # for Hugging Face's kernels rather than this repository's folder of that name
    import kernels  # noqa: F401
sys.path[:] = _path
