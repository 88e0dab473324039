// Adagrad on CUDA devices; the kernels are instances of run<...>.

#include "adagrad.h"
#include "cuda_group.h"

using namespace anyaccel;
