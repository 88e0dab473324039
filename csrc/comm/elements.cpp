#include "elements.h"

#include <array>
#include <iterator>

namespace anyaccel::comm {
namespace {

struct Fact {
  const char* name;
  std::size_t bytes;
};

constexpr Fact kDtypes[] = {
    {"float64", 8},        {"float32", 4},         {"float16", 2},       {"bfloat16", 2},
    {"float8_e4m3fn", 1},  {"float8_e5m2", 1},     {"int8", 1},          {"int16", 2},
    {"int32", 4},          {"int64", 8},           {"uint8", 1},         {"uint16", 2},
    {"uint32", 4},         {"uint64", 8},          {"bool", 1},          {"complex64", 8},
    {"complex128", 16},    {"a 1-byte type", 1},   {"a 2-byte type", 2}, {"a 4-byte type", 4},
    {"an 8-byte type", 8}, {"a 16-byte type", 16},
};

constexpr const char* kReductions[] = {"SUM",  "AVG", "PRODUCT", "MIN",        "MAX",
                                       "BAND", "BOR", "BXOR",    "PREMUL_SUM", "none"};

bool is_complex(Dtype dtype) { return dtype == Dtype::kComplex64 || dtype == Dtype::kComplex128; }

bool is_integral(Dtype dtype) { return dtype >= Dtype::kInt8 && dtype <= Dtype::kBool; }

}  // namespace

static_assert(std::size(kDtypes) == static_cast<std::size_t>(Dtype::kOpaque16) + 1);
static_assert(std::size(kReductions) == static_cast<std::size_t>(Reduction::kNone) + 1);

std::size_t element_bytes(Dtype dtype) { return kDtypes[static_cast<std::size_t>(dtype)].bytes; }

const char* name_of(Dtype dtype) { return kDtypes[static_cast<std::size_t>(dtype)].name; }

const char* name_of(Reduction reduction) { return kReductions[static_cast<std::size_t>(reduction)]; }

const char* refusal(Dtype dtype, Reduction reduction) {
  if (dtype >= Dtype::kOpaque1) return "this type can be moved, not reduced; expected a type with arithmetic";
  switch (reduction) {
    case Reduction::kMin:
    case Reduction::kMax:
      return is_complex(dtype) ? "complex numbers have no order; expected SUM, AVG or PRODUCT" : nullptr;
    case Reduction::kAnd:
    case Reduction::kOr:
    case Reduction::kXor:
      return is_integral(dtype) ? nullptr : "bitwise reductions are for integers and bool";
    case Reduction::kScaledSum:
      if (is_integral(dtype)) return "a factor is a floating-point number; expected a floating-point or complex type";
      return nullptr;
    case Reduction::kAverage:
      return dtype == Dtype::kBool ? "a bool has no average; expected SUM, MAX or MIN" : nullptr;
    case Reduction::kNone:
      return "there is no such reduction";
    default:
      return nullptr;
  }
}

}  // namespace anyaccel::comm
