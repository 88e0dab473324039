// csrc/includes/division.h for ctypes; with -D__CUDA_ARCH__=900 as CUDA devices divide.

#include "division.h"

extern "C" void divide(std::int64_t value, std::int64_t by, std::int64_t* results) {
  const anyaccel::Quotient quotient = anyaccel::divided(value, by);
  results[0] = quotient.whole;
  results[1] = quotient.rest;
}
