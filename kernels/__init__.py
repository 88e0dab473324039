"""The ops' code that is not C++: their functions on torch, and kernels in SYCL and Triton."""
