// RMSNorm on CUDA devices; the kernels are instances of run<...>.

#include "column_sum.h"
#include "cuda_group.h"
#include "rms_norm.h"

using namespace anyaccel;
