"""The toolchains that build ops, one file each; every probe accepts, or rejects with the reason and the fix.

A probe starts no device context and raises nothing. What a tool says of itself is asked once and remembered in the cache
against its path, size and modification time, so that a warm load starts no process.
"""
