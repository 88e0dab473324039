// Threads, blocks and places in the source, as messages name them.

#include "scheduler.h"

namespace emulator {

std::string name_of(const Coordinates& at, const Coordinates& size) {
  if (size.y == 1 && size.z == 1) {
    return std::to_string(at.x);
  }
  return "(" + std::to_string(at.x) + "," + std::to_string(at.y) + "," + std::to_string(at.z) + ")";
}

Coordinates coordinates_of(std::uint64_t number, const Coordinates& size) {
  const std::uint64_t row = number / size.x;
  return {static_cast<unsigned>(number % size.x), static_cast<unsigned>(row % size.y),
          static_cast<unsigned>(row / size.y)};
}

std::string place_of(const Site& site) {
  const std::string file = site.file;
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(site.line);
}

std::string name_of_thread() {
  return "thread " + name_of(thread_index, block_size) + " of block " + name_of(block_index, grid_size);
}

std::string name_of_thread_number(unsigned number) { return name_of(coordinates_of(number, block_size), block_size); }

}  // namespace emulator
