// All that includes torch's headers, as one translation unit: to read them takes most of the time.

#include "shm_backend.cpp"
#include "shm_backend_exchange.cpp"
#include "shm_module.cpp"
#include "shm_work.cpp"
#include "spanning_backend.cpp"
#include "spanning_collectives.cpp"
#include "sparse_all_reduce.cpp"
#include "staging.cpp"
#include "tensor_blocks.cpp"
