// What goes wrong between ranks. The text is complete: it names the ranks, the operation and the fix.

#pragma once

#include <stdexcept>
#include <string>

namespace anyaccel::comm {

struct CommError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A wait that ended before its operation did; the operation goes on.
struct WaitTimeout : CommError {
  using CommError::CommError;
};

// Ranks called different operations, or the same with other sizes, dtypes or roots; nothing was written.
struct MismatchError : CommError {
  using CommError::CommError;
};

// What a peer wrote into the shared memory makes no sense, and is not used.
[[noreturn]] inline void throw_corrupt(const std::string& what) {
  throw CommError("shm failed: got " + what +
                  " in the shared memory, which no rank of this version writes; expected nobody else to write there. "
                  "Fix: restart every rank, with the same version of anyaccel.");
}

// "the shared memory: fallocate failed: No space left on device"
[[noreturn]] void throw_errno(const std::string& what);

}  // namespace anyaccel::comm
