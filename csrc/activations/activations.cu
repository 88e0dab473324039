// Activations on CUDA devices; the kernels are instances of run<...>.

#include "activations.h"
#include "column_sum.h"
#include "cuda_group.h"

using namespace anyaccel;
