"""The objects that the loaders return, with plain functions that are the same on every device.

Each file has an op's functions and, for autograd and ``torch.compile``, its gradient and the shapes of its results.
"""
