// The dense layer's activation on CUDA devices; the kernels are instances of run<...>.

#include "column_sum.h"
#include "cuda_group.h"
#include "dense.h"

using namespace anyaccel;
