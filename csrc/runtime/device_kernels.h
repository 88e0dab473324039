// An op's table of device kernels, which Python fills once they are compiled. No torch header: what starts a kernel
// needs none.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "devices.h"

namespace anyaccel {

// What a device runtime offers: starts `kernel` on the current stream of `device`, with one argument of `bytes` bytes.
// Returns a message when it fails, else null.
using LaunchFunction = const char* (*)(void* kernel, std::int32_t device, std::int64_t groups, std::int32_t threads,
                                       const void* argument, std::size_t bytes);

struct Place {
  Runtime runtime;
  std::int32_t device;
};

// How much there is to do: `rows` of `columns`, a group working on a row at a time; or `columns` elements in one range.
struct Work {
  std::int64_t rows;
  std::int64_t columns;

  static Work of_rows(std::int64_t rows, std::int64_t columns) { return {rows, columns}; }
  static Work of_elements(std::int64_t count) { return {-1, count}; }

  bool has_rows() const { return rows >= 0; }
  bool is_empty() const { return rows == 0 || (columns == 0 && !has_rows()); }
  std::int64_t units() const { return has_rows() ? rows : columns; }
};

// Starts a registered kernel; throws when there is none of the name, or it cannot be started.
void launch_on_device(const Place& place, const std::string& kernel, const Work& work, std::int64_t groups,
                      const void* argument, std::size_t bytes);

}  // namespace anyaccel
