// Adds up the partial sums of groups: the last step of a sum over rows.
//
// Memory traffic: 4 bytes read for each partial result, one value written per column.

#pragma once

#include <cstdint>

#include "precision.h"

namespace anyaccel {

template <typename T>
struct ColumnSum {
  static constexpr int kBlocksOfAnSm = 3;

  const Compute<T>* partials;  // (groups, columns), groups `stride` apart
  T* sums;                     // (columns)
  std::int64_t groups;
  std::int64_t columns;
  std::int64_t stride;

  template <typename Group>
  void operator()(const Group& group) const {
    group.column_sums(partials, groups, columns, stride,
                      [to = sums](std::int64_t column, Compute<T> total) { store(total, to[column]); });
  }
};

}  // namespace anyaccel
