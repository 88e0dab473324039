// Rotary embedding on CUDA devices; the kernels are instances of run<...>.

#include "cuda_group.h"
#include "rotary_embedding.h"

using namespace anyaccel;
