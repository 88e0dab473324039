// Adds up what groups have kept for themselves: the last step of a sum over rows.
//
// Memory traffic: 4 B read for each partial result, one value written a column.

#pragma once

#include <cstdint>

#include "precision.h"

namespace anyaccel {

template <typename T>
struct ColumnSum {
  const Compute<T>* partials;  // (groups, columns), groups `stride` apart
  T* sums;                     // (columns)
  std::int64_t groups;
  std::int64_t columns;
  std::int64_t stride;

  template <typename Group>
  void operator()(const Group& group) const {
    group.elements(columns, [*this](std::int64_t i) {
      Compute<T> total = 0;
      for (std::int64_t part = 0; part < groups; ++part) {
        total += partials[part * stride + i];
      }
      store(total, sums[i]);
    });
  }
};

}  // namespace anyaccel
