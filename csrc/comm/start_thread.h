// Starts threads that nobody joins, in a process that may be allowed no more of them.

#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "errors.h"

namespace anyaccel::comm {

// Throws a CommError if the thread cannot be started; then nothing of `run` happens.
template <typename Run>
void start_thread(Run&& run) {
  try {
    std::thread(std::forward<Run>(run)).detach();
  } catch (const std::system_error& error) {
    throw CommError(std::string("shm failed: got no thread (") + error.what() +
                    "); expected the process to be allowed another one. Fix: raise the limit of processes and threads "
                    "(ulimit -u, or pids.max of a container).");
  }
}

}  // namespace anyaccel::comm
