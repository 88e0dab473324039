// Replaces accesses.cpp when ThreadSanitizer checks accesses.

#include "accesses.h"

namespace emulator {
namespace accesses {

void begin_launch(const Surroundings&) {}
void begin_block() {}
void set_thread(unsigned) {}
void pass_barrier() {}
void sync_warp(unsigned, Lanes) {}
void end_launch() {}

}  // namespace accesses

void check_atomic(const Site&, const volatile void*, std::size_t) {}
void note_atomic(const Site&, bool) {}
void fence() {}

}  // namespace emulator
