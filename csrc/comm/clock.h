#pragma once

#include <chrono>

namespace anyaccel::comm {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// When a time is over that begins now; never, for one beyond all clocks.
inline Clock::time_point end_of(milliseconds timeout) {
  constexpr std::chrono::hours kYears(24 * 365 * 10);
  return timeout > kYears ? Clock::time_point::max() : Clock::now() + timeout;
}

}  // namespace anyaccel::comm
