// The C interface for asynchronous reads and writes; op_builder/deepspeed/async_files.py owns memory and files.

#include <exception>
#include <new>

#include "handle.h"

#define ANYACCEL_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using anyaccel::async_io::Backend;
using anyaccel::async_io::Handle;
using anyaccel::async_io::OperationOutcome;

}  // namespace

// Returns null if threads cannot be started.
ANYACCEL_EXPORT void* anyaccel_aio_open(std::int64_t block_bytes, std::int32_t depth, std::int32_t threads,
                                        std::int32_t backend) {
  try {
    return new Handle(block_bytes, depth, threads, static_cast<Backend>(backend));
  } catch (const std::exception&) {
    return nullptr;
  }
}

ANYACCEL_EXPORT std::int32_t anyaccel_aio_backend(const void* handle) {
  return static_cast<std::int32_t>(static_cast<const Handle*>(handle)->backend());
}

// Returns 0 if memory cannot be allocated; the outcome's state then stays 0.
ANYACCEL_EXPORT std::int32_t anyaccel_aio_start(void* handle, OperationOutcome* outcome, std::int32_t is_read,
                                                std::int32_t direct, std::int32_t buffered, void* memory,
                                                std::int64_t bytes, std::int64_t offset) {
  try {
    static_cast<Handle*>(handle)->start(
        {outcome, is_read != 0, direct, buffered, static_cast<char*>(memory), bytes, offset});
    return 1;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

ANYACCEL_EXPORT void anyaccel_aio_wait(void* handle) { static_cast<Handle*>(handle)->wait(); }

ANYACCEL_EXPORT std::int32_t anyaccel_aio_has_ended(const OperationOutcome* outcome) {
  return outcome->has_ended() ? 1 : 0;
}

ANYACCEL_EXPORT void anyaccel_aio_close(void* handle) { delete static_cast<Handle*>(handle); }
