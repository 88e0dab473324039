"""A fuzzer for every op: arguments generated from schemas, two allowed outcomes. See ``python -m tests.fuzz --help``."""
