// Reports what is undefined in C++ itself: misaligned pointers, indices beyond an array, and divisions without a
// result, which end a process on the host. Kernels are compiled with -fsanitize for these, which calls the functions
// here. The checks of accesses.cpp are not enough: compilers split a vector access into parts, each of which may be
// aligned, and a thread's own arrays lie beside its other variables.

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

struct Place {
  const char* file;
  std::uint32_t line;
  std::uint32_t column;
};

struct Mismatch {
  Place place;
  const Type* type;
  unsigned char log_alignment;
  unsigned char check;
};

struct Index {
  Place place;
  const Type* array;
  const Type* index;
};

struct Division {
  Place place;
  const Type* type;
};

void report(const char* what, const std::string& found, const Place& place) {
  const emulator::Site site{place.file, static_cast<int>(place.line), ""};
  emulator::fail(std::string(what) + ": " + found + " by " + emulator::name_of_thread() + ", at " +
                 emulator::place_of(site));
}

}  // namespace

extern "C" EMULATOR_EXPORT void __ubsan_handle_type_mismatch_v1(Mismatch* found, std::uintptr_t at) {
  char where[64];
  std::snprintf(where, sizeof(where), " at 0x%lx, which is not a multiple of %lu,", static_cast<unsigned long>(at),
                1ul << found->log_alignment);
  report("misaligned access", std::string(found->type->name) + where, found->place);
}

extern "C" EMULATOR_EXPORT void __ubsan_handle_out_of_bounds(Index* found, std::uintptr_t index) {
  report("access out of bounds",
         "index " + std::to_string(static_cast<long>(index)) + " of an array " + found->array->name, found->place);
}

extern "C" EMULATOR_EXPORT void __ubsan_handle_divrem_overflow(Division* found, std::uintptr_t,
                                                               std::uintptr_t divisor) {
  const bool is_by_value = found->type->info >> 1 <= 6;  // the logarithm of its bits; wider divisors are in memory
  report(is_by_value && divisor != 0 ? "overflow of a division" : "division by zero",
         std::string("of ") + found->type->name, found->place);
}

// Sums, differences and products wrap around, as they do on a GPU.
extern "C" EMULATOR_EXPORT void __ubsan_handle_add_overflow(void*, std::uintptr_t, std::uintptr_t) {}
extern "C" EMULATOR_EXPORT void __ubsan_handle_sub_overflow(void*, std::uintptr_t, std::uintptr_t) {}
extern "C" EMULATOR_EXPORT void __ubsan_handle_mul_overflow(void*, std::uintptr_t, std::uintptr_t) {}
extern "C" EMULATOR_EXPORT void __ubsan_handle_negate_overflow(void*, std::uintptr_t) {}
