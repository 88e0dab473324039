"""These tests must not use a model hub or send telemetry."""

import os

os.environ.update(
    ACCELERATE_USE_CPU="true", DS_ACCELERATOR="cpu", HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_OFFLINE="1",
    TOKENIZERS_PARALLELISM="false", TRANSFORMERS_OFFLINE="1",
)  # fmt: skip
