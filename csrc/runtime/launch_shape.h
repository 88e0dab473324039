// The number of groups that share work on a device, and of threads in each: pure functions of the work's sizes and
// the device. tests/runtime tests them without a device.

#pragma once

#include <algorithm>
#include <cstdint>

#include "devices.h"

namespace anyaccel {

// The most threads of a group of a GPU; more where each keeps a few columns' totals from row to row, so that they are
// enough for long rows.
inline constexpr std::int32_t kMostThreads = 512;
inline constexpr std::int32_t kMostThreadsWithTotals = 1024;

// The elements that a thread takes of a row that is read in several passes: a few tiles, loaded at once.
inline constexpr std::int64_t kElementsOfAThread = 16;

// The amount of work: `rows` of `columns`, where a group processes one row at a time; or `columns` elements in one
// range, or in the chunks of tensors (tensor_table.h), of which each group of a device takes one.
struct Work {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t of_a_thread = 4;  // elements of a row that a thread takes at once, or in a few steps
  std::int64_t chunks = 0;       // the number of chunks of tensors
  std::int64_t summed_rows = 0;  // rows of `columns` to add up
  std::int32_t most_threads = kMostThreads;

  static Work of_rows(std::int64_t rows, std::int64_t columns) { return {rows, columns}; }
  static Work of_tiles(std::int64_t rows, std::int64_t columns, std::int64_t tile) {
    return {rows, columns, std::max<std::int64_t>(tile, 4)};
  }
  // Rows whose columns are added up by groups that keep totals (with_totals).
  static Work of_totals(std::int64_t rows, std::int64_t columns) {
    return {rows, columns, kElementsOfAThread / 2, 0, 0, kMostThreadsWithTotals};
  }
  static Work of_elements(std::int64_t count) { return {-1, count}; }
  static Work of_tensors(std::int64_t elements, std::int64_t chunks) { return {-1, elements, 4, chunks}; }

  static Work of_column_sums(std::int64_t rows, std::int64_t columns) { return {-1, columns, 4, 0, rows}; }

  bool has_rows() const { return rows >= 0; }
  bool is_empty() const { return rows == 0 || (columns == 0 && !has_rows() && chunks == 0); }
  std::int64_t units() const { return has_rows() ? rows : columns; }
};

// A device to launch kernels on; torch manages the CPU's threads.
struct Device {
  Runtime runtime;
  std::int32_t units;  // SMs of an NVIDIA GPU, Xe cores of an Intel GPU; 0 if unknown
};

struct Shape {
  std::int64_t groups;
  std::int32_t threads;                // threads of a group
  std::int32_t groups_of_a_block = 1;  // that NVIDIA's GPUs may run as one block, as a warp each
};

inline constexpr std::int64_t kMostGroups = 0x7fffffff;
inline constexpr std::int32_t kUnitsOfUnknown = 128;
inline constexpr std::int32_t kThreadsOfAChunk = 256;
inline constexpr std::int64_t kMostGroupsOfABlock = 8;

inline std::int64_t units_of(const Device& device) { return device.units > 0 ? device.units : kUnitsOfUnknown; }

inline std::int64_t parts_of(std::int64_t whole, std::int64_t part) { return (whole + part - 1) / part; }

// A row's threads depend only on its length: the order in which a row is summed, and so its last bit, must not
// depend on the number of rows. Measured on SYCL's CPU device: a work-group of one vector is fastest, as each vector of
// a larger one walks the whole row before the next.
inline std::int32_t threads_for_row(const Device& device, const Work& work) {
  if (device.runtime == Runtime::sycl) {
    return 16;
  }
  const std::int32_t most = device.runtime == Runtime::cuda ? work.most_threads : kMostThreads;
  std::int32_t threads = 32;
  while (threads < most && threads * work.of_a_thread < work.columns) {
    threads *= 2;
  }
  return threads;
}

// Four elements per thread if that occupies the device; otherwise fewer, then smaller groups, down to a warp. On SYCL's
// CPU device a loop in a kernel of single elements costs a factor of five.
inline Shape shape_for_elements(const Device& device, std::int64_t elements) {
  constexpr std::int32_t kThreads = 256;
  const auto groups = [&](std::int64_t of_a_group) {
    return std::clamp<std::int64_t>(parts_of(elements, of_a_group), 1, kMostGroups);
  };
  if (device.runtime == Runtime::sycl) {
    return {groups(kThreads), kThreads};
  }
  for (std::int32_t of_a_thread = 4; of_a_thread > 1; of_a_thread /= 2) {
    if (groups(kThreads * of_a_thread) >= units_of(device)) {
      return {groups(kThreads * of_a_thread), kThreads};
    }
  }
  std::int32_t threads = kThreads;
  while (threads > 32 && groups(threads) < units_of(device)) {
    threads /= 2;
  }
  return {groups(threads), threads};
}

// An SM holds 32 blocks but 64 warps, so that groups of one warp share blocks if there are enough for every SM. SYCL's
// devices ignore the number; the tests' emulator, which is one of them, takes what is allowed.
inline std::int32_t groups_of_a_block(const Device& device, const Work& work, std::int32_t threads) {
  if (threads > 32) {
    return 1;
  }
  const std::int64_t wanted = device.runtime == Runtime::cuda ? work.rows / units_of(device) : kMostGroupsOfABlock;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(wanted, 1, kMostGroupsOfABlock));
}

// The shape of a launch; with `groups` of 0, this function chooses their number.
inline Shape shape_for(const Device& device, const Work& work, std::int64_t groups = 0) {
  if (work.chunks > 0) {
    // on SYCL's CPU device, one group for each of many small tensors costs more than the work itself
    constexpr std::int64_t kElements = 4096;
    const bool has_few = device.runtime == Runtime::sycl;
    const std::int64_t most = has_few ? std::max<std::int64_t>(parts_of(work.columns, kElements), 1) : kMostGroups;
    return {groups > 0 ? groups : std::min(work.chunks, most), threads_for_row(device, Work{1, kThreadsOfAChunk, 1})};
  }
  if (work.summed_rows > 0 && device.runtime == Runtime::cuda) {
    // A group takes a strip of 32 columns, and 8 of its threads a row of it (BlockGroup::column_sums).
    std::int32_t threads = 32;
    while (threads < 256 && threads / 8 < work.summed_rows) {
      threads *= 2;
    }
    return {groups > 0 ? groups : std::clamp<std::int64_t>(parts_of(work.columns, 32), 1, kMostGroups), threads};
  }
  if (!work.has_rows()) {
    const Shape shape = shape_for_elements(device, work.columns);
    return {groups > 0 ? groups : shape.groups, shape.threads};
  }
  const std::int32_t threads = threads_for_row(device, work);
  if (groups > 0) {
    return {groups, threads};
  }
  return {std::clamp<std::int64_t>(work.rows, 1, kMostGroups), threads, groups_of_a_block(device, work, threads)};
}

// The number of groups that share rows when each keeps totals of every column, which are written and read once more: as
// many as a unit can hold if each group then has at least 16 rows, otherwise one per unit, so that none is idle. An SM
// holds 1024 threads whose registers keep totals.
inline std::int64_t device_groups_with_partials(const Device& device, const Work& work) {
  constexpr std::int64_t kRowsOfAGroup = 16;
  constexpr std::int64_t kThreadsOfAnSm = 1024;
  const bool is_cuda = device.runtime == Runtime::cuda;
  const std::int64_t of_a_unit = is_cuda ? kThreadsOfAnSm / threads_for_row(device, work) : 2;
  const std::int64_t units = units_of(device);
  return std::clamp<std::int64_t>(std::clamp<std::int64_t>(work.rows / kRowsOfAGroup, units, of_a_unit * units), 1,
                                  std::max<std::int64_t>(work.rows, 1));
}

// The number of parts of a row that groups process in parallel: one if there are enough rows for all units;
// otherwise a few per unit, of at least 4096 elements; on the CPU, where a unit is a thread, one per unit, of at least
// 16384.
inline std::int64_t parts_of_a_row(const Device& device, std::int64_t rows, std::int64_t columns) {
  const bool is_cpu = device.runtime == Runtime::cpu;
  const std::int64_t units = units_of(device);
  if (rows < 1 || rows >= units) {
    return 1;
  }
  const std::int64_t wanted = parts_of(is_cpu ? units : 4 * units, rows);
  return std::clamp<std::int64_t>(columns / (is_cpu ? 16384 : 4096), 1, wanted);
}

// The number of adjacent heads of a position that a group rotates: as many as its threads take in one step, fewer if
// units would be idle.
inline std::int64_t heads_of_a_group(const Device& device, std::int64_t positions, std::int64_t heads,
                                     std::int64_t columns) {
  constexpr std::int64_t kElements = 4096;
  const std::int64_t most =
      std::clamp<std::int64_t>(kElements / std::max<std::int64_t>(columns, 1), 1, std::max<std::int64_t>(heads, 1));
  const std::int64_t groups_of_a_position = parts_of(units_of(device), std::max<std::int64_t>(positions, 1));
  return std::clamp<std::int64_t>(heads / groups_of_a_position, 1, most);
}

}  // namespace anyaccel
