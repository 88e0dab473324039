// Lion on CUDA devices; the kernels are instances of run<...>.

#include "cuda_group.h"
#include "lion.h"

using namespace anyaccel;
