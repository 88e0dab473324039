#pragma once

#include <chrono>

namespace anyaccel::comm {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// The end of a period that begins now; never, if the clock cannot represent it.
inline Clock::time_point end_of(milliseconds timeout) {
  constexpr std::chrono::hours kYears(24 * 365 * 10);
  return timeout > kYears ? Clock::time_point::max() : Clock::now() + timeout;
}

}  // namespace anyaccel::comm
