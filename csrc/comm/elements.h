// Element types and reductions, without torch. Their numbers are this library's own, and the same on every rank.

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
  kOpaque16,  // the opaque types are moved and never reduced
};

enum class Reduction : std::uint8_t { kSum, kAverage, kProduct, kMin, kMax, kAnd, kOr, kXor, kScaledSum, kNone };

std::size_t element_bytes(Dtype dtype);
const char* name_of(Dtype dtype);
const char* name_of(Reduction reduction);

// Returns why a reduction is not defined for a type, or nullptr if it is.
const char* refusal(Dtype dtype, Reduction reduction);

// output[i] = inputs[0][i] ∘ inputs[1][i] ∘ …, in that order. 16- and 8-bit floats are summed in float and rounded
// once. Integers wrap around. MIN and MAX propagate NaN. A sum of bools is their OR. `scales`, one per input, are for
// kScaledSum. kAverage divides the sum by the number of inputs; for integers the sum does not overflow, and the result
// is rounded towards zero. The output may be one of the inputs.
//
// Memory traffic: every input is read once, the output is written once.
void reduce(Dtype dtype, Reduction reduction, void* output, const void* const* inputs, int n_inputs, std::size_t count,
            const double* scales);

}  // namespace anyaccel::comm
