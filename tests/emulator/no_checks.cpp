// Replaces accesses.cpp when ThreadSanitizer checks accesses.

#include "accesses.h"

namespace emulator::accesses {

void begin_launch(const Surroundings&) {}
void begin_block(unsigned) {}
void set_thread(unsigned) {}
void pass_barrier() {}
std::string end_launch() { return ""; }

}  // namespace emulator::accesses

extern "C" void emulator_add_module(void*) {}
