"""A fuzzer for every op: arguments made from schemas, two outcomes allowed. See ``python -m tests.fuzz --help``."""
