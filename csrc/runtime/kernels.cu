// An op's kernels on CUDA devices, which are instances of run<...>. Its row in the table of ops names the header.

#include "cuda_group.h"
#include ANYACCEL_OP_HEADER

using namespace anyaccel;
