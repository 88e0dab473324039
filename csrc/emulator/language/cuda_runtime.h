#pragma once  // what kernels need of it is there already
