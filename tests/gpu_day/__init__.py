"""All checks that need a GPU, in one command: ``make gpu-day OUT=dir``."""
