// Makes a `__global__` function callable from Python: a description of its parameters, and a call with their values.

#pragma once

#include <type_traits>
#include <utility>

#include "shared_memory.h"

namespace emulator {

// The same struct is in op_builder/cpu/emulator.py.
struct Parameter {
  const char* kind;  // of the parameter, or of what it points to: "float", "half", "bfloat16", "integer" or "other"
  std::int32_t bytes;
  bool is_pointer;
  bool is_const;  // whether it is a pointer to what the kernel only reads
};

template <typename Value>
constexpr Parameter described(bool is_pointer) {
  using Plain = std::remove_cv_t<Value>;
  const bool is_const = is_pointer && std::is_const_v<Value>;
  if constexpr (std::is_void_v<Plain>) {
    return {"other", 0, is_pointer, is_const};
  } else {
    constexpr int bytes = sizeof(Plain);
    if (std::is_same_v<Plain, __half>) {
      return {"half", bytes, is_pointer, is_const};
    }
    if (std::is_same_v<Plain, __nv_bfloat16>) {
      return {"bfloat16", bytes, is_pointer, is_const};
    }
    if (std::is_integral_v<Plain> || std::is_enum_v<Plain>) {
      return {"integer", bytes, is_pointer, is_const};
    }
    return {std::is_floating_point_v<Plain> ? "float" : "other", bytes, is_pointer, is_const};
  }
}

template <auto Function, typename Type = decltype(Function)>
struct Entry;

template <auto Function, typename... Types>
struct Entry<Function, void (*)(Types...)> {
  static constexpr int count = sizeof...(Types);
  static constexpr Parameter parameters[] = {described<std::remove_pointer_t<Types>>(std::is_pointer_v<Types>)...,
                                             Parameter{}};

  static void run(const void* values) { call(static_cast<void* const*>(values), std::index_sequence_for<Types...>{}); }

  template <std::size_t... Numbers>
  EMULATOR_UNCHECKED static void call([[maybe_unused]] void* const* values, std::index_sequence<Numbers...>) {
    Function(*static_cast<Types*>(values[Numbers])...);
  }
};

}  // namespace emulator

#define EMULATOR_ENTRY(...)                                                                                         \
  using EmulatorEntry = ::emulator::Entry<&__VA_ARGS__>;                                                            \
  extern "C" EMULATOR_EXPORT const ::emulator::Kernel emulator_kernel;                                              \
  const ::emulator::Kernel emulator_kernel = {#__VA_ARGS__, &EmulatorEntry::run, true, &::emulator::shared_memory}; \
  extern "C" EMULATOR_EXPORT const int emulator_parameter_count;                                                    \
  const int emulator_parameter_count = EmulatorEntry::count;                                                        \
  extern "C" EMULATOR_EXPORT const ::emulator::Parameter* const emulator_parameters;                                \
  const ::emulator::Parameter* const emulator_parameters = EmulatorEntry::parameters;
