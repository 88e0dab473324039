// csrc/runtime/hip_math.h on the host: the largest errors against the host's functions in long double, in units in the
// last place, and the special values. Prints a line for each.

#include "hip_math.h"

#include <cmath>
#include <cstdio>
#include <limits>

namespace {

template <typename Value>
double units_apart(Value found, long double exact) {
  const Value rounded = static_cast<Value>(exact);
  if (found == rounded || (std::isnan(found) && std::isnan(rounded))) {
    return 0;
  }
  const Value next = std::nextafter(std::fabs(rounded), std::numeric_limits<Value>::infinity());
  const long double unit = static_cast<long double>(next) - std::fabs(rounded);
  return static_cast<double>(std::fabs(found - exact) / unit);
}

template <typename Value, typename Own, typename Exact>
void compare(const char* name, double from, double to, Own own, Exact exact) {
  constexpr int kSteps = 1000003;
  double worst = 0;
  for (int i = 0; i <= kSteps; ++i) {
    const Value x = static_cast<Value>(from + (to - from) * i / kSteps);
    worst = std::fmax(worst, units_apart(own(x), exact(static_cast<long double>(x))));
  }
  std::printf("%s %g\n", name, worst);
}

}  // namespace

int main() {
  using namespace anyaccel;
  const auto exact_exp = [](long double x) { return std::exp(x); };
  const auto exact_erf = [](long double x) { return std::erf(x); };
  const auto exact_expm1 = [](long double x) { return std::expm1(x); };
  compare<double>("exp", -700, 709.7, own::exp, exact_exp);
  compare<double>("exp_near_zero", -1, 1, own::exp, exact_exp);
  compare<double>("exp_subnormal", -745.2, -708, own::exp, exact_exp);
  compare<double>("erf", -6.5, 6.5, own::erf, exact_erf);
  compare<double>("erf_near_zero", -1e-3, 1e-3, own::erf, exact_erf);
  compare<float>("expm1", -20, 88, own::expm1, exact_expm1);
  compare<float>("expm1_near_zero", -1e-4, 1e-4, own::expm1, exact_expm1);
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::printf("special %d\n", own::exp(infinity) == infinity && own::exp(-infinity) == 0 && own::exp(0.0) == 1 &&
                                  own::exp(710.0) == infinity && own::exp(-746.0) == 0 && std::isnan(own::exp(nan)) &&
                                  own::erf(infinity) == 1 && own::erf(-infinity) == -1 && std::isnan(own::erf(nan)) &&
                                  own::erf(0.0) == 0 && std::signbit(own::erf(-0.0)) && own::expm1(-1000.0f) == -1 &&
                                  std::isnan(own::expm1(static_cast<float>(nan))) && std::isinf(own::expm1(1000.0f)));
}
