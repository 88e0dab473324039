"""The published files: ``python -m tests.release dist`` checks them, at the end of ``make dist``."""
