// All that includes torch's headers, as one translation unit: to read them takes most of the time.

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O1")  // it calls torch and the core; what moves data is in the core
#endif

#include "shm_backend.cpp"
#include "shm_backend_exchange.cpp"
#include "shm_module.cpp"
#include "shm_work.cpp"
#include "spanning_agreement.cpp"
#include "spanning_any_source.cpp"
#include "spanning_backend.cpp"
#include "spanning_coalesced.cpp"
#include "spanning_collectives.cpp"
#include "spanning_exchange.cpp"
#include "spanning_messages.cpp"
#include "sparse_all_reduce.cpp"
#include "staging.cpp"
#include "tensor_blocks.cpp"
