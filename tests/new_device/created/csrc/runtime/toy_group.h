// A kernel's view of the toy device: one thread, with its share of the work; see cpu_group.h for what each member
// means.

#pragma once

#include "cpu_group.h"

namespace anyaccel {

struct ToyGroup : CpuGroup {
  CpuGroup share(std::int64_t units) const {
    return {units * index / count, units * (index + 1) / count, index, count};
  }

  template <typename Body>
  void rows(std::int64_t rows, const Body& body) const {
    share(rows).rows(rows, body);
  }

  template <typename Body>
  void elements(std::int64_t elements, const Body& body) const {
    share(elements).elements(elements, body);
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
};

using ToyKernel = void (*)(const void* argument, const ToyGroup& group);

// Every kernel is an instance of this one.
template <typename Kernel>
void run(const void* argument, const ToyGroup& group) {
  (*static_cast<const Kernel*>(argument))(group);
}

}  // namespace anyaccel
