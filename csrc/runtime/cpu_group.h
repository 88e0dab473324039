// A kernel's view of the CPU: one thread, with a range of the work.
//
// Kernels are templates over a Group, which is this thread on the CPU, a block of threads on CUDA and HIP
// (block_group.h) and a work-group on SYCL (sycl_group.h). CPU compilers vectorise the loops here.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>

#include "row.h"
#include "tensor_table.h"
#include "tile.h"

namespace anyaccel {

struct CpuGroup {
  static constexpr std::int64_t kBlock = 2048;
  static constexpr int kStrip = 64;  // elements

  // The number of elements in a tile when they are aligned.
  template <typename...>
  static constexpr std::int64_t kTile = 1;

  std::int64_t begin;  // the first row, or the first element if there are no rows
  std::int64_t end;
  std::int64_t index;  // the index of the group
  std::int64_t count;  // the number of groups

  // Calls `body` for this group's rows.
  template <typename Body>
  void rows(std::int64_t, const Body& body) const {
    for (std::int64_t row = begin; row < end; ++row) {
      body(row);
    }
  }

  // Asks a GPU for the row of each of `matrices` that this group processes after `row`, if there is one.
  template <typename... T>
  void fetch_next(std::int64_t, std::int64_t, std::int64_t, const T*...) const {}

  // Calls `body` for this group's elements, when there are no rows.
  template <typename Body>
  void elements(std::int64_t, const Body& body) const {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      body(i);
    }
  }

  // Calls `body(column, sum)` for every column of a matrix whose rows are `stride` apart.
  template <typename Value, typename Body>
  void column_sums(const Value* values, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                   const Body& body) const {
    elements(columns, [=](std::int64_t column) {
      Value total = 0;
      for (std::int64_t row = 0; row < rows; ++row) {
        total += values[row * stride + column];
      }
      body(column, total);
    });
  }

  // Calls `body(chunk)` for this group's chunks of tensors; see tensor_table.h. Here the chunks are its share of
  // each tensor.
  template <typename Table, typename Body>
  void chunks(const Table& table, const Body& body) const {
    for (std::int32_t number = 0; number < table.count; ++number) {
      const std::int64_t elements = table.elements_of(number);
      const std::int64_t from = share_begin(elements, index);
      body(Chunk{number, index, count, from, share_begin(elements, index + 1) - from});
    }
  }

  // Calls `body_of(t)(range)` for ranges that make up this group's part of tensors t, whose elements in every role
  // are of types T; see tile.h.
  template <typename... T, typename Table, typename BodyOf>
  void tensors(const Table& table, const BodyOf& body_of) const {
    std::int64_t first = 0;
    for (std::int32_t number = 0; number < table.count; ++number) {
      const std::int64_t from = std::max(begin, first) - first;
      const std::int64_t to = std::min(end, table.ends[number]) - first;
      const auto body = body_of(number);
#pragma omp simd
      for (std::int64_t i = from; i < to; ++i) {
        body(TileRange<1>{i});
      }
      first = table.ends[number];
    }
  }

  // Calls `body` for every element of a row; the group's threads share them.
  template <typename Body>
  void each(std::int64_t count, const Body& body) const {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
      body(i);
    }
  }

  // Calls `body(range)` for ranges that make up a row of elements of types T; see tile.h. Every call of a kernel for
  // the same row length and with the same `is_aligned` gives a thread the same elements.
  template <typename... T, typename Body>
  void tiles(std::int64_t count, bool, const Body& body) const {
    each(count, [&](std::int64_t i) { body(TileRange<1>{i}); });
  }

  // Like tiles, for a body whose own loop accumulates values: the compiler vectorises within a range.
  template <typename... T, typename Body>
  void strips(std::int64_t count, bool is_aligned, const Body& body) const {
    const std::int64_t in_strips = is_aligned ? count / kStrip * kStrip : 0;
    for (std::int64_t i = 0; i < in_strips; i += kStrip) {
      body(TileRange<kStrip>{i});
    }
    each(count - in_strips, [&](std::int64_t i) { body(TileRange<1>{in_strips + i}); });
  }

  // Calls `body_of(row)(range)` for ranges that make up `rows` short rows of `columns` elements of types T, which the
  // group's threads share; if there are several rows, they have fewer than 2^32 elements in total.
  template <typename... T, typename BodyOf>
  void tiles_of_rows(std::int64_t rows, std::int64_t columns, bool is_aligned, const BodyOf& body_of) const {
    for (std::int64_t row = 0; row < rows; ++row) {
      tiles<T...>(columns, is_aligned, body_of(row));
    }
  }

  // The sum over a row of the results of `body`, in every thread of the group. Added up block by block, because
  // rounding errors accumulate in one long sum.
  template <typename Value, typename Body>
  Value sum(std::int64_t count, const Body& body) const {
    Value total = 0;
    for (std::int64_t block = 0; block < count; block += kBlock) {
      const std::int64_t last = std::min(count, block + kBlock);
      Value part = 0;
#pragma omp simd reduction(+ : part)
      for (std::int64_t i = block; i < last; ++i) {
        part += body(i);
      }
      total += part;
    }
    return total;
  }

  // The sum of the results of `body(range)` for ranges that make up a row.
  template <typename Value, typename... T, typename Body>
  Value sum_tiles(std::int64_t count, bool, const Body& body) const {
    return sum<Value>(count, [&](std::int64_t i) { return body(TileRange<1>{i}); });
  }

  // The sums of `body(range, first, second)`, which adds to both.
  template <typename... T, typename Value, typename Body>
  void sums(std::int64_t count, bool, Value& first, Value& second, const Body& body) const {
    first = 0;
    second = 0;
    for (std::int64_t block = 0; block < count; block += kBlock) {
      const std::int64_t last = std::min(count, block + kBlock);
      Value one = 0;
      Value two = 0;
#pragma omp simd reduction(+ : one, two)
      for (std::int64_t i = block; i < last; ++i) {
        body(TileRange<1>{i}, one, two);
      }
      first += one;
      second += two;
    }
  }

  // The maximum over a row; NaNs are skipped.
  template <typename Value, typename Body>
  Value max(std::int64_t count, const Body& body) const {
    Value largest = -std::numeric_limits<Value>::infinity();
#pragma omp simd reduction(max : largest)
    for (std::int64_t i = 0; i < count; ++i) {
      const Value value = body(i);
      largest = value > largest ? value : largest;
    }
    return largest;
  }

  // The maximum of the results of `body(range)` for ranges that make up a row.
  template <typename Value, typename... T, typename Body>
  Value max_tiles(std::int64_t count, bool, const Body& body) const {
    return max<Value>(count, [&](std::int64_t i) { return body(TileRange<1>{i}); });
  }

  // Calls `body(row)` with a row of `count` elements of type T for several passes, mapped by `of(i, value)`;
  // see row.h. `Beside` are the types of further data that the passes read and write with it.
  template <typename T, typename... Beside, typename Of, typename Body>
  void with_row(std::int64_t count, bool is_aligned, const Of& of, const Body& body) const {
    RowInMemory<CpuGroup, Of, T, Beside...> row(*this, count, is_aligned, of);
    body(row);
  }

  // Calls `body(left, right)` with two such rows, unmapped.
  template <typename T, typename Body>
  void with_two_rows(std::int64_t count, bool is_aligned, const Body& body) const {
    RowInMemory<CpuGroup, AsTheyAre, T> left(*this, count, is_aligned, AsTheyAre{});
    RowInMemory<CpuGroup, AsTheyAre, T> right(*this, count, is_aligned, AsTheyAre{});
    body(left, right);
  }

  // Calls `body(values)` with `count` numbers for several passes, at `place` when they are published; see row.h.
  template <typename C, typename Body>
  void with_values(std::int64_t count, C* place, const Body& body) const {
    body(ValuesInMemory<CpuGroup, C>(*this, count, place));
  }

  // Calls `body(totals)` with `Kinds` totals for each of `count` columns, stored at `place` afterwards; see row.h.
  template <int Kinds, typename T, typename... Beside, typename Body>
  void with_totals(std::int64_t count, bool is_aligned, Compute<T>* place, const Body& body) const {
    body(TotalsInMemory<CpuGroup, Kinds, T, Beside...>(*this, count, is_aligned, place));
  }

  // Whether this thread writes the values of which the group has one.
  bool is_first() const { return true; }

  // Makes the writes of the group's threads visible to one another.
  void wait() const {}

  // Sets a flag to 1; other groups may do so at the same time.
  void raise(std::int32_t* flag) const { std::atomic_ref(*flag).store(1, std::memory_order_relaxed); }

 private:
  std::int64_t share_begin(std::int64_t elements, std::int64_t group) const {
    return elements / count * group + elements % count * group / count;
  }
};

}  // namespace anyaccel
