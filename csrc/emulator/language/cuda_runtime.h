#pragma once  // the runtime's API: cuda_on_host.h has what kernels need of it
