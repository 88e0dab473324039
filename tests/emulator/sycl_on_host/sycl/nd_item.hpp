#include "sycl_on_host.h"
