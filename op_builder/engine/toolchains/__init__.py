"""The toolchains that build ops, one file each; every probe accepts a tool, or rejects it with the reason and the fix.

A probe starts no device context and raises nothing. The version that a tool prints is read once and cached with the tool's
path, size and modification time, so a warm load starts no process.
"""
