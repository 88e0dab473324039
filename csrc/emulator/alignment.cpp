// Reports misaligned pointers. Kernels are compiled with -fsanitize=alignment, which calls this function. The checks of
// accesses.cpp are not enough, because compilers split a vector access into parts, each of which may be aligned.

#include <cstdint>
#include <cstdio>
#include <string>

#include "scheduler.h"

namespace {

// The compiler's own structs.
struct Type {
  std::uint16_t kind;
  std::uint16_t info;
  char name[1];
};

struct Mismatch {
  const char* file;
  std::uint32_t line;
  std::uint32_t column;
  const Type* type;
  unsigned char log_alignment;
  unsigned char check;
};

}  // namespace

extern "C" EMULATOR_EXPORT void __ubsan_handle_type_mismatch_v1(Mismatch* found, std::uintptr_t at) {
  char where[64];
  std::snprintf(where, sizeof(where), " at 0x%lx, which is not a multiple of %lu,", static_cast<unsigned long>(at),
                1ul << found->log_alignment);
  const emulator::Site site{found->file, static_cast<int>(found->line), found->type->name};
  emulator::fail("misaligned access: " + std::string(site.what) + where + " by " + emulator::name_of_thread() +
                 ", at " + emulator::place_of(site));
}
