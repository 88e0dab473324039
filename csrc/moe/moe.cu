// Mixtures of experts on CUDA devices; the kernels are instances of run<...>.

#include "cuda_group.h"
#include "moe.h"

using namespace anyaccel;
