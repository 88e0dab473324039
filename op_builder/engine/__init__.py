"""From sources to a verified binary in the cache: fingerprint, cache, lock, ninja file, toolchains, life cycle.

Knows nothing of any op, and imports neither torch nor a builder.
"""
