// The elementary functions that kernels call, for AMD GPUs, for which ziglang has no math library. Plain C++:
// tests/runtime compares them with the host's.

#pragma once

namespace anyaccel::own {

// e^x within 2 units in the last place: x = n ln 2 + r, the series of e^r, and two factors for 2^n so that neither
// overflows.
inline double exp(double x) {
  if (!(x < 709.8)) {
    return x * 1e300 * 1e300;  // infinity, or NaN if x is NaN
  }
  if (x < -745.2) {
    return 0.0;
  }
  const double n = __builtin_rint(x * 1.4426950408889634);
  const double r = __builtin_fma(n, -2.3190468138462996e-17, __builtin_fma(n, -0.6931471805599453, x));
  double sum = 1.0;
  for (int k = 14; k > 0; --k) {
    sum = __builtin_fma(sum * r, 1.0 / k, 1.0);
  }
  const int half = static_cast<int>(n) / 2;
  const int rest = static_cast<int>(n) - half;
  const auto power_of_two = [](int exponent) {
    return __builtin_bit_cast(double, static_cast<unsigned long long>(exponent + 1023) << 52);
  };
  return sum * power_of_two(half) * power_of_two(rest);
}

// e^x - 1 in double, which is exact enough for a float unless x is tiny.
inline float expm1(float x) {
  return __builtin_fabsf(x) < 1e-5f ? __builtin_fmaf(0.5f * x, x, x) : static_cast<float>(exp(double{x}) - 1.0);
}

// 2 / sqrt(pi) e^(-x^2) (x + 2 x^3 / 3 + 4 x^5 / 15 + ...), whose terms all have x's sign; within 1e-14. Float64 is
// for checking gradients, so it need not be fast.
inline double erf(double x) {
  const double size = __builtin_fabs(x);
  if (size > 6.0) {  // 1 - 2e-17
    return __builtin_copysign(1.0, x);
  }
  const double square = size * size;
  const double lost = __builtin_fma(size, size, -square);
  double term = size;
  double sum = size;
  for (int k = 3; term > 1e-17 * sum; k += 2) {
    term *= 2.0 * square / k;
    sum += term;
  }
  constexpr double kTwoBySqrtPi = 1.1283791670955126;
  return __builtin_copysign(kTwoBySqrtPi * exp(-square) * (1.0 - lost) * sum, x);
}

}  // namespace anyaccel::own
