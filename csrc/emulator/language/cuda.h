#pragma once  // the driver's API: cuda_on_host.h has what kernels need of it
