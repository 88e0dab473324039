"""Support for deepspeed's names: its builders, and the modules that they load, on this project's kernels."""
