// An op's kernels on AMD's GPUs; the engine adds one for each instance. Its row in the table of ops names the header.

#pragma clang force_cuda_host_device begin
#include "hip_group.h"
#include ANYACCEL_OP_HEADER
#pragma clang force_cuda_host_device end

using namespace anyaccel;
