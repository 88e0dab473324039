"""What the loaders return: objects with plain functions, the same whatever device runs them.

Each file holds an op's functions and, for autograd and ``torch.compile``, its derivative and its results' shapes.
"""
