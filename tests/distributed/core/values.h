// Small whole numbers as elements of any dtype, so that every result has one right value.

#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "collectives.h"

// Loops over memory that one thread has: to watch each access would take most of the time.
#define FUZZ_UNWATCHED __attribute__((no_sanitize("thread", "address"), noinline))

namespace fuzz {

using Numbers = std::vector<int>;

constexpr anyaccel::comm::Dtype kDtypes[] = {
    anyaccel::comm::Dtype::kFloat32, anyaccel::comm::Dtype::kFloat64, anyaccel::comm::Dtype::kBFloat16,
    anyaccel::comm::Dtype::kInt8,    anyaccel::comm::Dtype::kInt16,   anyaccel::comm::Dtype::kInt32,
    anyaccel::comm::Dtype::kInt64,   anyaccel::comm::Dtype::kUInt8,
};

template <typename T>
FUZZ_UNWATCHED void convert(const int* from, T* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<T>(from[i]);
}

// Exact up to 256.
FUZZ_UNWATCHED inline void convert_to_bfloat16(const int* from, std::uint16_t* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(from[i])) >> 16);
  }
}

FUZZ_UNWATCHED inline void count_up(int* numbers, std::size_t start, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) numbers[i] = static_cast<int>((start + i) % 16);
}

FUZZ_UNWATCHED inline void reduce_into(anyaccel::comm::Reduction reduction, int* total, const int* more,
                                       std::size_t count) {
  using anyaccel::comm::Reduction;
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_larger = more[i] > total[i];
    if (reduction == Reduction::kSum) total[i] += more[i];
    if (reduction == Reduction::kMax && is_larger) total[i] = more[i];
    if (reduction == Reduction::kMin && !is_larger) total[i] = more[i];
  }
}

template <typename T>
std::vector<unsigned char> bytes_of(const Numbers& numbers) {
  std::vector<unsigned char> bytes(numbers.size() * sizeof(T));
  convert(numbers.data(), reinterpret_cast<T*>(bytes.data()), numbers.size());
  return bytes;
}

inline std::vector<unsigned char> encoded(anyaccel::comm::Dtype dtype, const Numbers& numbers) {
  using anyaccel::comm::Dtype;
  switch (dtype) {
    case Dtype::kFloat64:
      return bytes_of<double>(numbers);
    case Dtype::kBFloat16: {
      std::vector<unsigned char> bytes(numbers.size() * 2);
      convert_to_bfloat16(numbers.data(), reinterpret_cast<std::uint16_t*>(bytes.data()), numbers.size());
      return bytes;
    }
    case Dtype::kInt8:
    case Dtype::kUInt8:
      return bytes_of<std::uint8_t>(numbers);
    case Dtype::kInt16:
      return bytes_of<std::int16_t>(numbers);
    case Dtype::kInt32:
      return bytes_of<std::int32_t>(numbers);
    case Dtype::kInt64:
      return bytes_of<std::int64_t>(numbers);
    default:
      return bytes_of<float>(numbers);
  }
}

// What a rank has for another in an operation: 0 to 15, so that a sum of eight fits every dtype.
inline Numbers numbers_of(std::uint64_t operation, int from, int to, std::size_t count) {
  Numbers numbers(count);
  count_up(numbers.data(), operation * 31 + from * 7 + to * 3, count);
  return numbers;
}

}  // namespace fuzz
