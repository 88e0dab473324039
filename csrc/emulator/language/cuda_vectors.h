// CUDA's vector types.

#pragma once

using uint3 = ::emulator::Coordinates;

inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 of) : x(of.x), y(of.y), z(of.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

#define EMULATOR_VECTORS_OF_1_2_4(name, type)                                                                  \
  struct name##1 { type x; };                                                                                  \
  struct __attribute__((aligned(2 * sizeof(type)))) name##2 { type x, y; };                                    \
  struct __attribute__((aligned(4 * sizeof(type) < 16 ? 4 * sizeof(type) : 16))) name##4 { type x, y, z, w; }; \
  inline name##1 make_##name##1(type x) { return {x}; }                                                        \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }                                             \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
#define EMULATOR_VECTORS(name, type)    \
  EMULATOR_VECTORS_OF_1_2_4(name, type) \
  struct name##3 { type x, y, z; };     \
  inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }

EMULATOR_VECTORS(char, signed char)
EMULATOR_VECTORS(uchar, unsigned char)
EMULATOR_VECTORS(short, short)
EMULATOR_VECTORS(ushort, unsigned short)
EMULATOR_VECTORS(int, int)
EMULATOR_VECTORS_OF_1_2_4(uint, unsigned)
EMULATOR_VECTORS(long, long)
EMULATOR_VECTORS(ulong, unsigned long)
EMULATOR_VECTORS(longlong, long long)
EMULATOR_VECTORS(ulonglong, unsigned long long)
EMULATOR_VECTORS(float, float)
EMULATOR_VECTORS(double, double)
