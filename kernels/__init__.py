"""Code of the ops that is not C++: their functions on torch, and kernels in SYCL and Triton."""
