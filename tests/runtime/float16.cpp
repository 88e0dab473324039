// Compares the conversions of float16 with the compiler's own type: every half, and one float of each `step`.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "precision.h"

using namespace anyaccel;

static bool same(float left, float right) {
  return left != left ? right != right : left == right && std::signbit(left) == std::signbit(right);
}

static bool is_nan(std::uint16_t half) { return (half & 0x7fffu) > 0x7c00u; }

int main(int, char** arguments) {
  const std::uint64_t step = std::strtoull(arguments[1], nullptr, 10);
  std::uint64_t wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    wrong += !same(to_float(half), static_cast<float>(bit_cast<_Float16>(half.bits)));
  }
  for (std::uint64_t bits = 0; bits < 0x100000000u; bits += step) {
    const float value = bit_cast<float>(static_cast<std::uint32_t>(bits));
    const auto expected = bit_cast<std::uint16_t>(static_cast<_Float16>(value));
    Half half;
    store(value, half);
    wrong += half.bits != expected && !(is_nan(half.bits) && is_nan(expected));
  }
  std::printf("%llu\n", static_cast<unsigned long long>(wrong));
}
