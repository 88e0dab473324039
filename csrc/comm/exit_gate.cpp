#include "exit_gate.h"

#include <unistd.h>

#include <thread>

#include "process_wide.h"

namespace anyaccel::comm {
namespace {

thread_local bool keeps_going = false;

}  // namespace

ExitGate& ExitGate::instance() { return process_wide<ExitGate>(); }

void ExitGate::enter() {
  ++inside_;  // before the check: close() sets the flag first, and counts then
  if (!is_closed_ || closer_.load() == std::this_thread::get_id()) return;
  --inside_;
  for (;;) pause();
}

ExitGate::Leaving::~Leaving() {
  const ExitGate& gate = instance();
  if (!gate.is_closed_ || keeps_going || gate.closer_.load() == std::this_thread::get_id()) return;
  for (;;) pause();
}

void ExitGate::keep_going() { keeps_going = true; }

void ExitGate::close(milliseconds patience) {
  closer_ = std::this_thread::get_id();
  is_closed_ = true;
  const auto until = end_of(patience);
  while (inside_ > 0 && Clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
}

}  // namespace anyaccel::comm
