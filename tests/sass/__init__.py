"""The SASS gate: facts of every kernel's machine code, read without a GPU and held so that none gets worse."""
