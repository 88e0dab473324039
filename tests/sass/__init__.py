"""The SASS gate: facts about every kernel's machine code, read without a GPU and checked so that none gets worse."""
