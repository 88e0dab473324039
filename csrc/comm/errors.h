// Errors between ranks. Their text is complete: it names the ranks, the operation and the fix.

#pragma once

#include <stdexcept>
#include <string>

namespace anyaccel::comm {

struct CommError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Ranks called different operations, or one operation with different sizes, dtypes or roots. Nothing was written.
struct MismatchError : CommError {
  using CommError::CommError;
};

// A peer wrote invalid data into the shared memory. It is not used.
[[noreturn]] inline void throw_corrupt(const std::string& what) {
  throw CommError(
      "shm failed: got " + what +
      " in the shared memory, which no rank of this version writes; expected only this group's ranks to write there. "
      "Fix: restart every rank, with the same version of anyaccel.");
}

// Throws "<what>: <the text of errno>".
[[noreturn]] void throw_errno(const std::string& what);

}  // namespace anyaccel::comm
