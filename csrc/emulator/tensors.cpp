#include "tensors.h"

#include "memory.h"

namespace emulator {
namespace {

const Tensor* tensors = nullptr;
std::size_t count = 0;

}  // namespace

void set_tensors(const Tensor* all, std::size_t how_many) {
  tensors = all;
  count = how_many;
}

bool memory::is_in_tensor(std::uintptr_t at, std::size_t bytes) {
  for (std::size_t i = 0; i < count; ++i) {
    if (at >= tensors[i].begin && at + bytes <= tensors[i].begin + tensors[i].bytes) {
      return true;
    }
  }
  return false;
}

}  // namespace emulator
