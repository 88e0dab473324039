// Several tensors in one launch: their addresses, passed by value within the 4 KB that a kernel's argument may take.

#pragma once

#include <cstdint>

namespace anyaccel {

template <int Roles>
struct TensorTable {
  static constexpr std::int32_t kCapacity = 3200 / (8 * (Roles + 1));

  std::int64_t ends[kCapacity];  // of each tensor's elements, counted through all tensors
  void* data[kCapacity][Roles];
  std::int32_t count;
  std::int32_t first;  // which of a call's tensors is number 0

  std::int64_t begin_of(std::int32_t number) const { return number == 0 ? 0 : ends[number - 1]; }

  // The tensor that holds an element; `ends` ascend, and neighbours almost always agree.
  std::int32_t number_of(std::int64_t element) const {
    std::int32_t low = 0;
    std::int32_t high = count - 1;
    while (low < high) {
      const std::int32_t middle = (low + high) / 2;
      if (element < ends[middle]) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  template <typename T>
  T* at(std::int32_t number, int role) const {
    return static_cast<T*>(data[number][role]);
  }
};

// What decides on the device whether a step is taken and what gradients are divided by, so that the host need not wait.
struct StepControl {
  const std::int32_t* skip;  // no step where it is not zero, as after an overflow; null when there is none
  const float* grad_scale;   // gradients are divided by it; null when there is none

  bool is_skipped() const { return skip != nullptr && *skip != 0; }
  float grad_factor() const { return grad_scale == nullptr ? 1.0f : 1.0f / *grad_scale; }
};

}  // namespace anyaccel
