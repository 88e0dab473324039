// Element types and reductions, without torch: their numbers are this library's own and are the same on every rank.

#pragma once

#include <cstddef>
#include <cstdint>

namespace anyaccel::comm {

enum class Dtype : std::uint8_t {
  kFloat64,
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat8E4M3,
  kFloat8E5M2,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kBool,
  kComplex64,
  kComplex128,
  kOpaque1,
  kOpaque2,
  kOpaque4,
  kOpaque8,
  kOpaque16,  // moved, never reduced
};

enum class Reduction : std::uint8_t { kSum, kAverage, kProduct, kMin, kMax, kAnd, kOr, kXor, kScaledSum, kNone };

std::size_t element_bytes(Dtype dtype);
const char* name_of(Dtype dtype);
const char* name_of(Reduction reduction);

// Why a reduction is not defined for a type; nullptr when it is.
const char* refusal(Dtype dtype, Reduction reduction);

// output[i] = inputs[0][i] ∘ inputs[1][i] ∘ …, in that order. 16- and 8-bit floats are summed in float and rounded
// once; integers wrap around; MIN and MAX hand a NaN on; a bool is summed as OR. `scales`, one an input, are for
// kScaledSum; kAverage divides the sum by the number of inputs, for integers, whose sum it has whole, towards zero.
// Output may be one of the inputs.
//
// Memory traffic: every input is read once, the output is written once.
void reduce(Dtype dtype, Reduction reduction, void* output, const void* const* inputs, int n_inputs, std::size_t count,
            const double* scales);

}  // namespace anyaccel::comm
