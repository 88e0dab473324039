// Loops are plain and blocked: a block of sums stays in the L1 cache while every input passes by, and vectorises.

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <type_traits>
#include <utility>

#include "elements.h"
#include "float8.h"
#include "precision.h"

namespace anyaccel::comm {
namespace {

constexpr std::size_t kBlock = 1024;

template <typename Format>
struct Float8 {
  std::uint8_t bits;
};

template <typename T>
struct Sum {
  using type = T;
};
template <>
struct Sum<BFloat16> {
  using type = float;
};
template <>
struct Sum<Half> {
  using type = float;
};
template <typename T>
using SumOf = typename Sum<T>::type;

template <typename T>
SumOf<T> load(const T& element) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>) {
    return to_float(element);
  } else {
    return element;
  }
}
template <typename Format>
float load(const Float8<Format>& element) {
  return from_float8<Format>(element.bits);
}

template <typename T>
void put(SumOf<T> value, T& element) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>) {
    anyaccel::store(value, element);
  } else {
    element = value;
  }
}
template <typename Format>
void put(float value, Float8<Format>& element) {
  // like torch's conversion: infinite where the format is, from the middle between its largest and the next one
  constexpr bool kHasInfinity = Format::kMantissa == 2;
  const std::uint8_t infinite = value < 0 ? 0xfc : 0x7c;
  element.bits = kHasInfinity && std::fabs(value) >= 61440.0f ? infinite : to_float8<Format>(value);
}

template <typename T>
constexpr bool kIsComplex = false;
template <typename T>
constexpr bool kIsComplex<std::complex<T>> = true;

// A bool is any non-zero byte on its way in.
struct Bool {
  std::uint8_t bits;
};

std::uint8_t load(const Bool& element) { return element.bits != 0; }
void put(std::uint8_t value, Bool& element) { element.bits = value; }

// Signed overflow is undefined, and wrapping around is what torch's kernels do.
template <typename T, bool kIsInteger = std::is_integral_v<T>>
struct Wrapping {
  using type = T;
};
template <typename T>
struct Wrapping<T, true> {
  using type = std::conditional_t<sizeof(T) < 4, std::uint32_t, std::make_unsigned_t<T>>;
};

template <Reduction kOp, typename T>
T combine(T a, T b) {
  using W = typename Wrapping<T>::type;
  if constexpr (kOp == Reduction::kSum) {
    return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
  } else if constexpr (kOp == Reduction::kProduct) {
    return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
  } else if constexpr (kOp == Reduction::kMin) {
    return a < b || a != a ? a : b;  // a NaN in b fails both comparisons
  } else if constexpr (kOp == Reduction::kMax) {
    return a > b || a != a ? a : b;
  } else if constexpr (kOp == Reduction::kAnd) {
    return static_cast<T>(a & b);
  } else if constexpr (kOp == Reduction::kOr) {
    return static_cast<T>(a | b);
  } else {
    static_assert(kOp == Reduction::kXor);
    return static_cast<T>(a ^ b);
  }
}

template <typename S>
S scaled(S value, double scale) {
  if constexpr (kIsComplex<S>) {
    return value * static_cast<typename S::value_type>(scale);
  } else {
    return value * static_cast<S>(scale);
  }
}

template <typename S>
S averaged(S sum, int n) {
  if constexpr (kIsComplex<S>) {
    return sum / static_cast<typename S::value_type>(n);
  } else {
    return static_cast<S>(sum / static_cast<S>(n));
  }
}

struct Call {
  const void* const* inputs;
  int n_inputs;
  std::size_t count;
  const double* scales;  // nullptr without
  bool averages;
};

template <typename T, Reduction kOp>
void two_inputs(T* output, const T* a, const T* b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    put(combine<kOp>(load(a[i]), load(b[i])), output[i]);
  }
}

// The sum of integers may be too large for their type, their average is not.
template <typename T>
void integer_averages(T* output, const T* const* inputs, int n_inputs, std::size_t count) {
  using Wide = std::conditional_t<sizeof(T) < 8, std::int64_t, __int128>;
  for (std::size_t i = 0; i < count; ++i) {
    Wide sum = 0;
    for (int input = 0; input < n_inputs; ++input) sum += inputs[input][i];
    output[i] = static_cast<T>(sum / n_inputs);
  }
}

template <typename T, Reduction kOp>
void blocks(void* output, const Call& call) {
  using S = decltype(load(std::declval<const T&>()));
  const auto* const* inputs = reinterpret_cast<const T* const*>(call.inputs);
  if (call.n_inputs == 2 && call.scales == nullptr && !call.averages) {
    return two_inputs<T, kOp>(static_cast<T*>(output), inputs[0], inputs[1], call.count);
  }
  S sums[kBlock];
  for (std::size_t start = 0; start < call.count; start += kBlock) {
    const std::size_t n = std::min(kBlock, call.count - start);
    for (int input = 0; input < call.n_inputs; ++input) {
      const T* values = inputs[input] + start;
      const double scale = kOp == Reduction::kSum && call.scales ? call.scales[input] : 1;
      if (input == 0) {
        for (std::size_t i = 0; i < n; ++i) sums[i] = load(values[i]);
        if constexpr (kOp == Reduction::kSum) {
          if (call.scales) std::transform(sums, sums + n, sums, [&](S value) { return scaled(value, scale); });
        }
      } else if (kOp == Reduction::kSum && call.scales) {
        for (std::size_t i = 0; i < n; ++i) sums[i] = combine<kOp>(sums[i], scaled<S>(load(values[i]), scale));
      } else {
        for (std::size_t i = 0; i < n; ++i) sums[i] = combine<kOp>(sums[i], load(values[i]));
      }
    }
    if constexpr (kOp == Reduction::kSum && !std::is_integral_v<T>) {
      if (call.averages) std::transform(sums, sums + n, sums, [&](S sum) { return averaged(sum, call.n_inputs); });
    }
    T* out = static_cast<T*>(output) + start;
    for (std::size_t i = 0; i < n; ++i) put(sums[i], out[i]);
  }
}

// Only what has a meaning (refusal() in elements.h): each instance takes a hundredth of a second to compile. Signed
// integers share the instances of unsigned ones where the bits of the result are the same.
template <typename T>
void by_reduction(Reduction reduction, void* output, const Call& call) {
  constexpr bool kIsInteger = std::is_integral_v<T>;
  using Bits = typename std::conditional_t<kIsInteger, std::make_unsigned<T>, std::type_identity<T>>::type;
  switch (reduction) {
    case Reduction::kProduct:
      return blocks<Bits, Reduction::kProduct>(output, call);
    case Reduction::kMin:
      if constexpr (!kIsComplex<T>) blocks<T, Reduction::kMin>(output, call);
      return;
    case Reduction::kMax:
      if constexpr (!kIsComplex<T>) blocks<T, Reduction::kMax>(output, call);
      return;
    case Reduction::kAnd:
      if constexpr (kIsInteger) blocks<Bits, Reduction::kAnd>(output, call);
      return;
    case Reduction::kOr:
      if constexpr (kIsInteger) blocks<Bits, Reduction::kOr>(output, call);
      return;
    case Reduction::kXor:
      if constexpr (kIsInteger) blocks<Bits, Reduction::kXor>(output, call);
      return;
    default:
      break;
  }
  if constexpr (kIsInteger) {
    const auto* const* inputs = reinterpret_cast<const T* const*>(call.inputs);
    if (call.averages) return integer_averages(static_cast<T*>(output), inputs, call.n_inputs, call.count);
  }
  if (call.scales) return blocks<T, Reduction::kSum>(output, call);
  blocks<Bits, Reduction::kSum>(output, call);
}

// On zeros and ones OR is what SUM and MAX mean, and AND what PRODUCT and MIN do.
void reduce_bool(Reduction reduction, void* output, const Call& call) {
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kMax:
    case Reduction::kOr:
      return blocks<Bool, Reduction::kOr>(output, call);
    case Reduction::kProduct:
    case Reduction::kMin:
    case Reduction::kAnd:
      return blocks<Bool, Reduction::kAnd>(output, call);
    case Reduction::kXor:
      return blocks<Bool, Reduction::kXor>(output, call);
    default:
      return;
  }
}

}  // namespace

void reduce(Dtype dtype, Reduction reduction, void* output, const void* const* inputs, int n_inputs, std::size_t count,
            const double* scales) {
  const Call call{inputs, n_inputs, count, reduction == Reduction::kScaledSum ? scales : nullptr,
                  reduction == Reduction::kAverage};
  switch (dtype) {
    case Dtype::kFloat64:
      return by_reduction<double>(reduction, output, call);
    case Dtype::kFloat32:
      return by_reduction<float>(reduction, output, call);
    case Dtype::kFloat16:
      return by_reduction<Half>(reduction, output, call);
    case Dtype::kBFloat16:
      return by_reduction<BFloat16>(reduction, output, call);
    case Dtype::kFloat8E4M3:
      return by_reduction<Float8<E4M3>>(reduction, output, call);
    case Dtype::kFloat8E5M2:
      return by_reduction<Float8<E5M2>>(reduction, output, call);
    case Dtype::kInt8:
      return by_reduction<std::int8_t>(reduction, output, call);
    case Dtype::kInt16:
      return by_reduction<std::int16_t>(reduction, output, call);
    case Dtype::kInt32:
      return by_reduction<std::int32_t>(reduction, output, call);
    case Dtype::kInt64:
      return by_reduction<std::int64_t>(reduction, output, call);
    case Dtype::kUInt8:
      return by_reduction<std::uint8_t>(reduction, output, call);
    case Dtype::kUInt16:
      return by_reduction<std::uint16_t>(reduction, output, call);
    case Dtype::kUInt32:
      return by_reduction<std::uint32_t>(reduction, output, call);
    case Dtype::kUInt64:
      return by_reduction<std::uint64_t>(reduction, output, call);
    case Dtype::kBool:
      return reduce_bool(reduction, output, call);
    case Dtype::kComplex64:
      return by_reduction<std::complex<float>>(reduction, output, call);
    case Dtype::kComplex128:
      return by_reduction<std::complex<double>>(reduction, output, call);
    default:
      return;
  }
}

}  // namespace anyaccel::comm
