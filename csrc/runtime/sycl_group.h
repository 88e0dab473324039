// A kernel's view of a SYCL device: a work-group; cpu_group.h describes each member.

#pragma once

// These headers instead of sycl/sycl.hpp: a kernel compiles in a third of the time.
#include <cstdint>
#include <sycl/atomic_ref.hpp>
#include <sycl/ext/oneapi/free_function_queries.hpp>
#include <sycl/group_algorithm.hpp>
#include <sycl/group_barrier.hpp>
#include <sycl/nd_item.hpp>

#include "elementary.h"
#include "row.h"
#include "tensor_table.h"
#include "tile.h"
#if __has_include(<sycl/ext/oneapi/free_function_kernel_properties.hpp>)
#include <sycl/ext/oneapi/free_function_kernel_properties.hpp>
#else  // before 2026
#include <sycl/ext/oneapi/kernel_properties/properties.hpp>
#endif

namespace anyaccel {

struct SyclGroup {
  template <typename...>
  static constexpr std::int64_t kTile = 1;

  sycl::nd_item<1> item = sycl::ext::oneapi::this_work_item::get_nd_item<1>();
  std::int64_t index = item.get_group_linear_id();
  std::int64_t count = item.get_group_range(0);

  template <typename Body>
  void rows(std::int64_t count, const Body& body) const {
    for (std::int64_t row = index; row < count; row += item.get_group_range(0)) {
      body(row);
    }
  }

  template <typename... T>
  void fetch_next(std::int64_t, std::int64_t, std::int64_t, const T*...) const {}

  template <typename Body>
  void elements(std::int64_t count, const Body& body) const {
    const std::int64_t stride = item.get_global_range(0);
    for (std::int64_t i = item.get_global_linear_id(); i < count; i += stride) {
      body(i);
    }
  }

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

  template <typename Table, typename Body>
  void chunks(const Table& table, const Body& body) const {
    for (std::int64_t chunk = index; chunk < table.chunks(); chunk += count) {
      body(table.chunk(chunk));
    }
  }

  template <typename... T, typename Table, typename BodyOf>
  void tensors(const Table& table, const BodyOf& body_of) const {
    chunks(table, [&](const Chunk& chunk) {
      const auto body = body_of(chunk.number);
      each(chunk.elements, [&](std::int64_t i) { body(TileRange<1>{chunk.begin + i}); });
    });
  }

  template <typename Body>
  void each(std::int64_t count, const Body& body) const {
    const std::int64_t stride = item.get_local_range(0);
    for (std::int64_t i = item.get_local_linear_id(); i < count; i += stride) {
      body(i);
    }
  }

  template <typename... T, typename Body>
  void tiles(std::int64_t count, bool, const Body& body) const {
    each(count, [&](std::int64_t i) { body(TileRange<1>{i}); });
  }

  template <typename... T, typename Body>
  void strips(std::int64_t count, bool is_aligned, const Body& body) const {
    tiles<T...>(count, is_aligned, body);
  }

  template <typename... T, typename BodyOf>
  void tiles_of_rows(std::int64_t rows, std::int64_t columns, bool is_aligned, const BodyOf& body_of) const {
    for (std::int64_t row = 0; row < rows; ++row) {
      tiles<T...>(columns, is_aligned, body_of(row));
    }
  }

  template <typename Value, typename Body>
  Value sum(std::int64_t count, const Body& body) const {
    Value total = 0;
    each(count, [&](std::int64_t i) { total += body(i); });
    return sycl::reduce_over_group(item.get_group(), total, sycl::plus<Value>());
  }

  template <typename Value, typename... T, typename Body>
  Value sum_tiles(std::int64_t count, bool, const Body& body) const {
    return sum<Value>(count, [&](std::int64_t i) { return body(TileRange<1>{i}); });
  }

  template <typename... T, typename Value, typename Body>
  void sums(std::int64_t count, bool, Value& first, Value& second, const Body& body) const {
    Value one = 0;
    Value two = 0;
    each(count, [&](std::int64_t i) { body(TileRange<1>{i}, one, two); });
    first = sycl::reduce_over_group(item.get_group(), one, sycl::plus<Value>());
    second = sycl::reduce_over_group(item.get_group(), two, sycl::plus<Value>());
  }

  template <typename Value, typename Body>
  Value max(std::int64_t count, const Body& body) const {
    Value largest = -infinity<Value>();
    each(count, [&](std::int64_t i) {
      const Value value = body(i);
      largest = value > largest ? value : largest;
    });
    return sycl::reduce_over_group(item.get_group(), largest, sycl::maximum<Value>());
  }

  template <typename Value, typename... T, typename Body>
  Value max_tiles(std::int64_t count, bool, const Body& body) const {
    return max<Value>(count, [&](std::int64_t i) { return body(TileRange<1>{i}); });
  }

  template <typename T, typename... Beside, typename Of, typename Body>
  void with_row(std::int64_t count, bool is_aligned, const Of& of, const Body& body) const {
    RowInMemory<SyclGroup, Of, T, Beside...> row(*this, count, is_aligned, of);
    body(row);
  }

  template <typename T, typename Body>
  void with_two_rows(std::int64_t count, bool is_aligned, const Body& body) const {
    RowInMemory<SyclGroup, AsTheyAre, T> left(*this, count, is_aligned, AsTheyAre{});
    RowInMemory<SyclGroup, AsTheyAre, T> right(*this, count, is_aligned, AsTheyAre{});
    body(left, right);
  }

  template <typename C, typename Body>
  void with_values(std::int64_t count, C* place, const Body& body) const {
    body(ValuesInMemory<SyclGroup, C>(*this, count, place));
  }

  template <int Kinds, typename T, typename... Beside, typename Body>
  void with_totals(std::int64_t count, bool is_aligned, Compute<T>* place, const Body& body) const {
    body(TotalsInMemory<SyclGroup, Kinds, T, Beside...>(*this, count, is_aligned, place));
  }

  bool is_first() const { return item.get_local_linear_id() == 0; }

  void wait() const { sycl::group_barrier(item.get_group()); }

  void raise(std::int32_t* flag) const {
    sycl::atomic_ref<std::int32_t, sycl::memory_order::relaxed, sycl::memory_scope::device>(*flag).store(1);
  }
};

}  // namespace anyaccel

// Defines a kernel that calls a struct; the engine adds one for each instance that it compiles.
#define ANYACCEL_SYCL_KERNEL(name, ...)                                                                          \
  extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::nd_range_kernel<1>)) void name( \
      __VA_ARGS__ kernel) {                                                                                      \
    kernel(anyaccel::SyclGroup{});                                                                               \
  }
