// __half and __nv_bfloat16: stored in 2 bytes, computed in float.

#pragma once

#include "../../includes/precision.h"

#define EMULATOR_SMALL_FLOAT(name, stored)                                                        \
  struct name {                                                                                   \
    ::anyaccel::stored kept;                                                                      \
    name() = default;                                                                             \
    name(float value) { ::anyaccel::store(value, kept); }                                         \
    name(double value) : name(static_cast<float>(value)) {}                                       \
    name(int value) : name(static_cast<float>(value)) {}                                          \
    operator float() const { return ::anyaccel::to_float(kept); }                                 \
    name& operator+=(name other) { return *this = name(float(*this) + float(other)); }            \
    name& operator-=(name other) { return *this = name(float(*this) - float(other)); }            \
    name& operator*=(name other) { return *this = name(float(*this) * float(other)); }            \
    name& operator/=(name other) { return *this = name(float(*this) / float(other)); }            \
  };                                                                                              \
  struct alignas(4) name##2 { name x, y; };                                                       \
  inline name operator+(name a, name b) { return name(float(a) + float(b)); }                     \
  inline name operator-(name a, name b) { return name(float(a) - float(b)); }                     \
  inline name operator*(name a, name b) { return name(float(a) * float(b)); }                     \
  inline name operator/(name a, name b) { return name(float(a) / float(b)); }                     \
  inline name operator-(name a) { return name(-float(a)); }                                       \
  inline name __hadd(name a, name b) { return a + b; }                                            \
  inline name __hsub(name a, name b) { return a - b; }                                            \
  inline name __hmul(name a, name b) { return a * b; }                                            \
  inline name __hdiv(name a, name b) { return a / b; }                                            \
  inline name __hneg(name a) { return -a; }                                                       \
  inline name __habs(name a) { return name(fabsf(float(a))); }                                    \
  inline name __hfma(name a, name b, name c) { return name(fmaf(float(a), float(b), float(c))); } \
  inline name __hmax(name a, name b) { return name(fmaxf(float(a), float(b))); }                  \
  inline name __hmin(name a, name b) { return name(fminf(float(a), float(b))); }                  \
  inline bool __heq(name a, name b) { return float(a) == float(b); }                              \
  inline bool __hlt(name a, name b) { return float(a) < float(b); }                               \
  inline bool __hgt(name a, name b) { return float(a) > float(b); }                               \
  inline bool __hisnan(name a) { return float(a) != float(a); }                                   \
  inline name hexp(name a) { return name(expf(float(a))); }                                       \
  inline name hlog(name a) { return name(logf(float(a))); }                                       \
  inline name hsqrt(name a) { return name(sqrtf(float(a))); }                                     \
  inline name##2 __hadd2(name##2 a, name##2 b) { return {a.x + b.x, a.y + b.y}; }                 \
  inline name##2 __hsub2(name##2 a, name##2 b) { return {a.x - b.x, a.y - b.y}; }                 \
  inline name##2 __hmul2(name##2 a, name##2 b) { return {a.x * b.x, a.y * b.y}; }                 \
  inline name##2 __hfma2(name##2 a, name##2 b, name##2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
