// Division of counts.

#pragma once

#include <cstdint>

namespace anyaccel {

struct Quotient {
  std::int64_t whole;
  std::int64_t rest;
};

// Both results of a division of numbers that are not negative; in 32 bits where they fit: every thread of a GPU
// divides, and 64 bits take several times the instructions.
inline Quotient divided(std::int64_t value, std::int64_t by) {
  if (by == 1) {
    return {value, 0};
  }
  if ((value | by) >> 32 == 0) {
    const std::uint32_t whole = static_cast<std::uint32_t>(value) / static_cast<std::uint32_t>(by);
    return {whole, static_cast<std::uint32_t>(value) - whole * static_cast<std::uint32_t>(by)};
  }
#if defined(__CUDA_ARCH__)
  // Bit by bit, as it is rare: a 64-bit division calls a subroutine, for which a kernel saves registers in memory.
  std::uint64_t whole = 0;
  std::uint64_t rest = 0;
#pragma unroll 1
  for (int bit = 62; bit >= 0; --bit) {
    rest = rest << 1 | (static_cast<std::uint64_t>(value) >> bit & 1);
    const bool fits = rest >= static_cast<std::uint64_t>(by);
    rest -= fits ? static_cast<std::uint64_t>(by) : 0;
    whole = whole << 1 | static_cast<std::uint64_t>(fits);
  }
  return {static_cast<std::int64_t>(whole), static_cast<std::int64_t>(rest)};
#else
  const std::int64_t whole = value / by;
  return {whole, value - whole * by};
#endif
}

}  // namespace anyaccel
