// SGD on CUDA devices; the kernels are instances of run<...>.

#include "cuda_group.h"
#include "sgd.h"

using namespace anyaccel;
