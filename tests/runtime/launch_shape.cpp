// csrc/runtime/launch_shape.h for ctypes.

#include "launch_shape.h"

using namespace anyaccel;

extern "C" {

std::int64_t shape_of(std::int32_t runtime, std::int32_t units, std::int64_t rows, std::int64_t columns,
                      std::int64_t groups, std::int32_t* threads) {
  const Shape shape = shape_for({static_cast<Runtime>(runtime), units}, {rows, columns}, groups);
  *threads = shape.threads;
  return shape.groups;
}

std::int32_t groups_of_a_block(std::int32_t runtime, std::int32_t units, std::int64_t rows, std::int64_t columns,
                               std::int64_t groups) {
  return shape_for({static_cast<Runtime>(runtime), units}, {rows, columns}, groups).groups_of_a_block;
}

std::int32_t threads_for_tiles(std::int32_t runtime, std::int64_t columns, std::int64_t tile) {
  return shape_for({static_cast<Runtime>(runtime), 0}, Work::of_tiles(1, columns, tile)).threads;
}

std::int64_t with_partials(std::int32_t runtime, std::int32_t units, std::int64_t rows, std::int64_t columns) {
  return device_groups_with_partials({static_cast<Runtime>(runtime), units}, Work::of_totals(rows, columns));
}

std::int64_t shape_of_column_sums(std::int32_t runtime, std::int32_t units, std::int64_t rows, std::int64_t columns,
                                  std::int32_t* threads) {
  const Shape shape = shape_for({static_cast<Runtime>(runtime), units}, Work::of_column_sums(rows, columns));
  *threads = shape.threads;
  return shape.groups;
}

std::int64_t parts_of_a_row(std::int32_t runtime, std::int32_t units, std::int64_t rows, std::int64_t columns) {
  return anyaccel::parts_of_a_row({static_cast<Runtime>(runtime), units}, rows, columns);
}

std::int64_t heads_of_a_group(std::int32_t runtime, std::int32_t units, std::int64_t positions, std::int64_t heads,
                              std::int64_t columns) {
  return anyaccel::heads_of_a_group({static_cast<Runtime>(runtime), units}, positions, heads, columns);
}

std::int64_t shape_of_tensors(std::int32_t runtime, std::int64_t elements, std::int64_t chunks, std::int32_t* threads) {
  const Shape shape = shape_for({static_cast<Runtime>(runtime), 0}, Work::of_tensors(elements, chunks));
  *threads = shape.threads;
  return shape.groups;
}

bool has_tensors(std::int64_t elements, std::int64_t chunks) { return !Work::of_tensors(elements, chunks).is_empty(); }
}
