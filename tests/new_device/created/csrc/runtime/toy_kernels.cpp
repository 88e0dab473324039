// An op's kernels on the toy device: instances of run<...>. The op's row in the table names the header and,
// in ANYACCEL_KERNELS, the instances: ANYACCEL_KERNEL(RmsNormForward<float, float>) and so on.

#include <cstring>

#include "toy_group.h"
#include ANYACCEL_OP_HEADER

namespace {

using namespace anyaccel;

struct Instance {
  const char* name;
  ToyKernel kernel;
};

#define ANYACCEL_KERNEL(...) {#__VA_ARGS__, &run<__VA_ARGS__>},
constexpr Instance kInstances[] = {ANYACCEL_KERNELS};

}  // namespace

// Returns a kernel by its instance's name, or null.
extern "C" __attribute__((visibility("default"))) void* anyaccel_toy_kernel(const char* name) {
  for (const Instance& one : kInstances) {
    if (std::strcmp(one.name, name) == 0) {
      return reinterpret_cast<void*>(one.kernel);
    }
  }
  return nullptr;
}
