// An op's kernels on CUDA devices: instances of run<...>. The op's row in the table names the header.

#include "cuda_group.h"
#include ANYACCEL_OP_HEADER

using namespace anyaccel;
