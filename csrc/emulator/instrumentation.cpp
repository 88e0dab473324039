// The functions that compilers call for each access of a kernel, instead of ThreadSanitizer's library.

#include <cstring>
#include <string>

#include "accesses.h"
#include "scheduler.h"

using emulator::Access;
using emulator::accesses::access;

#define ON_ACCESS(name, bytes, alignment)                                     \
  extern "C" EMULATOR_EXPORT void __tsan_##name##read##bytes(void* at) {      \
    access(at, bytes, alignment, Access::Read, __builtin_return_address(0));  \
  }                                                                           \
  extern "C" EMULATOR_EXPORT void __tsan_##name##write##bytes(void* at) {     \
    access(at, bytes, alignment, Access::Write, __builtin_return_address(0)); \
  }
ON_ACCESS(, 1, 1)
ON_ACCESS(, 2, 2)
ON_ACCESS(, 4, 4)
ON_ACCESS(, 8, 8)
ON_ACCESS(, 16, 0)  // also structs with a smaller alignment; -fsanitize=alignment checks that of vectors
// Accesses of types whose alignment is less than their size: structs, and types that the source declares as unaligned.
ON_ACCESS(unaligned_, 2, 0)
ON_ACCESS(unaligned_, 4, 0)
ON_ACCESS(unaligned_, 8, 0)
ON_ACCESS(unaligned_, 16, 0)

// Copies of structs. The compiler does not pass their alignment.
extern "C" EMULATOR_EXPORT void __tsan_read_range(void* at, unsigned long bytes) {
  access(at, bytes, 0, Access::Read, __builtin_return_address(0));
}
extern "C" EMULATOR_EXPORT void __tsan_write_range(void* at, unsigned long bytes) {
  access(at, bytes, 0, Access::Write, __builtin_return_address(0));
}
// The pointer to an object's table of virtual functions.
extern "C" EMULATOR_EXPORT void __tsan_vptr_update(void** at, void*) {
  access(at, sizeof(void*), sizeof(void*), Access::Write, __builtin_return_address(0));
}
extern "C" EMULATOR_EXPORT void __tsan_vptr_read(void** at) {
  access(at, sizeof(void*), sizeof(void*), Access::Read, __builtin_return_address(0));
}
extern "C" EMULATOR_EXPORT void __tsan_func_entry(void*) {}
extern "C" EMULATOR_EXPORT void __tsan_func_exit() {}
extern "C" EMULATOR_EXPORT void __tsan_init() {}

// g++ does not instrument memcpy, memmove and memset, so kernels are compiled with -fno-builtin and linked with --wrap
// for them. clang calls the __tsan_ names.
#define ON_COPY(name, copy)                                                                    \
  extern "C" EMULATOR_EXPORT void* name##copy(void* to, const void* from, std::size_t bytes) { \
    if (bytes != 0) {                                                                          \
      access(const_cast<void*>(from), bytes, 0, Access::Read, __builtin_return_address(0));    \
      access(to, bytes, 0, Access::Write, __builtin_return_address(0));                        \
    }                                                                                          \
    return std::copy(to, from, bytes);                                                         \
  }
#define ON_SETTING(name)                                                                  \
  extern "C" EMULATOR_EXPORT void* name##memset(void* to, int value, std::size_t bytes) { \
    if (bytes != 0) {                                                                     \
      access(to, bytes, 0, Access::Write, __builtin_return_address(0));                   \
    }                                                                                     \
    return std::memset(to, value, bytes);                                                 \
  }
ON_COPY(__wrap_, memcpy)
ON_COPY(__wrap_, memmove)
ON_COPY(__tsan_, memcpy)
ON_COPY(__tsan_, memmove)
ON_SETTING(__wrap_)
ON_SETTING(__tsan_)

extern "C" EMULATOR_EXPORT void __wrap___assert_fail(const char* text, const char* file, unsigned line, const char*) {
  const emulator::Site site{file, static_cast<int>(line), "assert"};
  emulator::fail("assertion failed: " + std::string(text) + " by " + emulator::name_of_thread() + ", at " +
                 emulator::place_of(site));
}
