// All that includes torch's headers but the Python module, as one translation unit: torch's headers take 7 s in each.

#include "shm_backend.cpp"
#include "shm_backend_exchange.cpp"
#include "shm_work.cpp"
#include "spanning_backend.cpp"
#include "spanning_collectives.cpp"
#include "sparse_all_reduce.cpp"
#include "staging.cpp"
#include "tensor_blocks.cpp"
