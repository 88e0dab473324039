// The part of SYCL that the sources use, for g++: a work-item is a thread of the emulator's block.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "accesses.h"
#include "block.h"

namespace sycl {

enum class memory_order { relaxed = __ATOMIC_RELAXED };
enum class memory_scope { device };

template <typename Value, memory_order Order, memory_scope>
class atomic_ref {
 public:
  explicit atomic_ref(Value& value) : value_(value) {}
  EMULATOR_UNCHECKED void store(Value value) const {
    emulator::check_atomic(EMULATOR_SITE("atomic_ref::store"), &value_, sizeof(Value));
    value_ = value;
  }

 private:
  Value& value_;
};

template <typename Value>
struct plus {
  Value operator()(Value left, Value right) const { return left + right; }
};

template <typename Value>
struct maximum {
  Value operator()(Value left, Value right) const { return std::max(left, right); }
};

struct work_group {};

template <int>
struct nd_item {
  work_group get_group() const { return {}; }
  std::size_t get_group_linear_id() const { return emulator::block_index.x; }
  std::size_t get_group_range(int) const { return emulator::grid_size.x; }
  std::size_t get_local_linear_id() const { return emulator::thread_index.x; }
  std::size_t get_local_range(int) const { return emulator::block_size.x; }
  std::size_t get_global_range(int) const { return get_local_range(0) * get_group_range(0); }
  std::size_t get_global_linear_id() const {
    return get_group_linear_id() * get_local_range(0) + get_local_linear_id();
  }
};

// Macros, so that each use is a separate site.
#define group_barrier(group) on_host::barrier(EMULATOR_SITE("group_barrier"), group)
#define reduce_over_group(...) on_host::reduced(EMULATOR_SITE("reduce_over_group"), __VA_ARGS__)

namespace on_host {

inline void barrier(const emulator::Site& site, work_group) { emulator::barrier(site); }

template <typename Value, typename Combine>
Value reduced(const emulator::Site& site, work_group, Value value, Combine combine) {
  static thread_local Value given[1024];  // like __shared__
  emulator::barrier(site);                // another thread may still read an earlier result
  given[emulator::thread_index.x] = value;
  emulator::barrier(site);
  Value result = given[0];
  for (unsigned thread = 1; thread < emulator::block_size.x; ++thread) {
    result = combine(result, given[thread]);
  }
  return result;
}

}  // namespace on_host

namespace ext::oneapi::this_work_item {

template <int Dimensions>
nd_item<Dimensions> get_nd_item() {
  return {};
}

}  // namespace ext::oneapi::this_work_item
}  // namespace sycl
