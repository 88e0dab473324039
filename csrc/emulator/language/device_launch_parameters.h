#pragma once  // threadIdx and the like: cuda_on_host.h has what kernels need of it
