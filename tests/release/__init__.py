"""What is published: ``python -m tests.release dist`` looks at it, and ``make dist`` ends with that."""
