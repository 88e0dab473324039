// CUDA's atomic operations. All threads are fibers of one host thread, so nothing runs between a read and a write.

#pragma once

#include <type_traits>

#include "../accesses.h"

struct __half;
struct __nv_bfloat16;

namespace emulator {

template <typename Value>
struct Itself {
  using type = Value;
};
template <typename Value>
using Given = typename Itself<Value>::type;  // not deduced from the other arguments

template <typename Value, typename... Choices>
constexpr bool is_one_of = (std::is_same_v<Value, Choices> || ...);

template <typename Value>
constexpr bool is_atomic_integer = is_one_of<Value, int, unsigned, unsigned long long>;
template <typename Value>
constexpr bool is_added = is_atomic_integer<Value> || is_one_of<Value, float, double, __half, __nv_bfloat16>;
template <typename Value>
constexpr bool is_ordered = is_atomic_integer<Value> || is_one_of<Value, long long>;

// Replaces a value with the result of `next`, and returns the old value.
template <typename Value, typename Next>
EMULATOR_UNCHECKED Value replace(const char* what, const char* file, int line, Value* at, Next next) {
  const Site site{file, line, what};
  check_atomic(site, at, sizeof(Value));
  const Value old = *at;
  const Value made = next(old);
  *at = made;
  note_atomic(site, __builtin_memcmp(&old, &made, sizeof(Value)) != 0);
  return old;
}

}  // namespace emulator

#define EMULATOR_ATOMIC(name, is_served, served, made)                                                          \
  template <typename Value>                                                                                     \
  EMULATOR_UNCHECKED Value name(Value* at, ::emulator::Given<Value> value, const char* file = __builtin_FILE(), \
                                int line = __builtin_LINE()) {                                                  \
    static_assert(::emulator::is_served<Value>, "CUDA's " #name " takes " served);                              \
    return ::emulator::replace(#name, file, line, at,                                                           \
                               [=](Value old) EMULATOR_UNCHECKED { return static_cast<Value>(made); });         \
  }                                                                                                             \
  template <typename Value>                                                                                     \
  EMULATOR_UNCHECKED Value name##_block(Value* at, ::emulator::Given<Value> value,                              \
                                        const char* file = __builtin_FILE(), int line = __builtin_LINE()) {     \
    return name(at, value, file, line);                                                                         \
  }
#define EMULATOR_INTEGERS "int, unsigned and unsigned long long"
#define EMULATOR_FLOATS EMULATOR_INTEGERS ", float, double, __half and __nv_bfloat16"

EMULATOR_ATOMIC(atomicAdd, is_added, EMULATOR_FLOATS, old + value)
EMULATOR_ATOMIC(atomicSub, is_atomic_integer, EMULATOR_INTEGERS, old - value)
EMULATOR_ATOMIC(atomicMin, is_ordered, EMULATOR_INTEGERS " and long long", old < value ? old : value)
EMULATOR_ATOMIC(atomicMax, is_ordered, EMULATOR_INTEGERS " and long long", old < value ? value : old)
EMULATOR_ATOMIC(atomicAnd, is_atomic_integer, EMULATOR_INTEGERS, old& value)
EMULATOR_ATOMIC(atomicOr, is_atomic_integer, EMULATOR_INTEGERS, old | value)
EMULATOR_ATOMIC(atomicXor, is_atomic_integer, EMULATOR_INTEGERS, old ^ value)
EMULATOR_ATOMIC(atomicInc, is_atomic_integer, "unsigned", old >= value ? 0 : old + 1)
EMULATOR_ATOMIC(atomicDec, is_atomic_integer, "unsigned", old == 0 || old > value ? value : old - 1)

template <typename Value>
EMULATOR_UNCHECKED Value atomicExch(Value* at, ::emulator::Given<Value> value, const char* file = __builtin_FILE(),
                                    int line = __builtin_LINE()) {
  static_assert(::emulator::is_atomic_integer<Value> || std::is_same_v<Value, float>,
                "CUDA's atomicExch takes " EMULATOR_INTEGERS " and float");
  return ::emulator::replace("atomicExch", file, line, at, [=](Value) EMULATOR_UNCHECKED { return value; });
}

template <typename Value>
EMULATOR_UNCHECKED Value atomicCAS(Value* at, ::emulator::Given<Value> expected, ::emulator::Given<Value> value,
                                   const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  static_assert(::emulator::is_atomic_integer<Value> || std::is_same_v<Value, unsigned short>,
                "CUDA's atomicCAS takes " EMULATOR_INTEGERS " and unsigned short");
  return ::emulator::replace("atomicCAS", file, line, at,
                             [=](Value old) EMULATOR_UNCHECKED { return old == expected ? value : old; });
}
