#include "exit_gate.h"

#include <unistd.h>

#include <thread>

#include "process_wide.h"

namespace anyaccel::comm {

ExitGate& ExitGate::instance() { return process_wide<ExitGate>(); }

void ExitGate::enter() {
  ++inside_;  // before the check: close() sets the flag first, and counts then
  if (!is_closed_) return;
  --inside_;
  for (;;) pause();
}

void ExitGate::close(milliseconds patience) {
  is_closed_ = true;
  const auto until = end_of(patience);
  while (inside_ > 0 && Clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
}

}  // namespace anyaccel::comm
