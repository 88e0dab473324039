// A kernel's view of the toy device: one thread, with its share of the work; cpu_group.h describes each
// member.

#pragma once

#include "cpu_group.h"

namespace anyaccel {

// Members that iterate over a thread's share are defined here. The others are the CPU's, listed by name, so that a new
// member of CpuGroup is a compile error, and not a thread that processes everything or nothing.
class ToyGroup : CpuGroup {
 public:
  ToyGroup(std::int64_t index, std::int64_t count) : CpuGroup{0, 0, index, count} {}

  using CpuGroup::count;
  using CpuGroup::each;
  using CpuGroup::fetch_next;
  using CpuGroup::index;
  using CpuGroup::is_first;
  using CpuGroup::kTile;
  using CpuGroup::max;
  using CpuGroup::max_tiles;
  using CpuGroup::raise;
  using CpuGroup::strips;
  using CpuGroup::sum;
  using CpuGroup::sum_tiles;
  using CpuGroup::sums;
  using CpuGroup::tiles;
  using CpuGroup::tiles_of_rows;
  using CpuGroup::wait;
  using CpuGroup::with_row;
  using CpuGroup::with_totals;
  using CpuGroup::with_two_rows;
  using CpuGroup::with_values;

  template <typename Body>
  void rows(std::int64_t rows, const Body& body) const {
    share(rows).rows(rows, body);
  }

  template <typename Body>
  void elements(std::int64_t elements, const Body& body) const {
    share(elements).elements(elements, body);
  }

  template <typename Value, typename Body>
  void column_sums(const Value* values, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                   const Body& body) const {
    share(columns).column_sums(values, rows, columns, stride, body);
  }

  template <typename Table, typename Body>
  void chunks(const Table& table, const Body& body) const {
    for (std::int64_t chunk = index; chunk < table.chunks(); chunk += count) {
      body(table.chunk(chunk));
    }
  }

  template <typename... T, typename Table, typename BodyOf>
  void tensors(const Table& table, const BodyOf& body_of) const {
    share(table.elements()).template tensors<T...>(table, body_of);
  }

 private:
  CpuGroup share(std::int64_t units) const {
    return {units * index / count, units * (index + 1) / count, index, count};
  }
};

using ToyKernel = void (*)(const void* argument, const ToyGroup& group);

// Every kernel is an instance of this one.
template <typename Kernel>
void run(const void* argument, const ToyGroup& group) {
  (*static_cast<const Kernel*>(argument))(group);
}

}  // namespace anyaccel
