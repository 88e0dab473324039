// A row of softmax with 2^31 columns or more, in memory whose pages exist only where they are touched: a group that
// takes two of the row's tiles alone, as a device takes them.

#include <sys/mman.h>

#include <cstdint>

#include "cpu_group.h"
#include "softmax.h"

using namespace anyaccel;

namespace {

struct TwoTiles : CpuGroup {
  template <typename... T>
  static constexpr std::int64_t kTile = kTileOf<T...>;

  std::int64_t second;  // where the second tile begins

  template <typename... T, typename Body>
  void tiles(std::int64_t count, bool, const Body& body) const {
    for (const std::int64_t first : {std::int64_t{0}, second}) {
      if (first < count) {
        body(TileRange<kTileOf<T...>>{first});
      }
    }
  }

  template <typename Value, typename... T, typename Body>
  Value sum_tiles(std::int64_t count, bool is_aligned, const Body& body) const {
    Value total = 0;
    tiles<T...>(count, is_aligned, [&](auto range) { total += body(range); });
    return total;
  }

  template <typename Value, typename... T, typename Body>
  Value max_tiles(std::int64_t count, bool is_aligned, const Body& body) const {
    Value largest = -infinity<Value>();
    tiles<T...>(count, is_aligned, [&](auto range) { largest = larger(largest, body(range)); });
    return largest;
  }

  template <typename T, typename... Beside, typename Of, typename Body>
  void with_row(std::int64_t count, bool is_aligned, const Of& of, const Body& body) const {
    RowInMemory<TwoTiles, Of, T, Beside...> row(*this, count, is_aligned, of);
    body(row);
  }
};

template <typename T>
T* pages(std::int64_t columns) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const found = mmap(nullptr, columns * sizeof(T), PROT_READ | PROT_WRITE, flags, -1, 0);
  return found == MAP_FAILED ? nullptr : static_cast<T*>(found);
}

template <typename T>
float share(std::int64_t columns, bool is_of_second) {
  const std::int64_t second = columns / 2 / kTileOf<T> * kTileOf<T>;
  T* const x = pages<T>(columns);
  T* const y = pages<T>(columns);
  if (x == nullptr || y == nullptr) {
    return -1.0f;
  }
  TwoTiles group{{0, 1, 0, 1}, second};
  SoftmaxForward<T>{x, y, SoftmaxMask{nullptr, {}, 1, 1, false}, 1, columns, 1.0f}(group);
  const float result = to_float(y[is_of_second ? second : 0]);
  munmap(x, columns * sizeof(T));
  munmap(y, columns * sizeof(T));
  return result;
}

}  // namespace

extern "C" {

// The share of an element of the first or of the second tile, all of which are equal.
float share_of_a_tile(std::int64_t columns, bool is_of_second) { return share<BFloat16>(columns, is_of_second); }
float share_of_a_float_tile(std::int64_t columns, bool is_of_second) { return share<float>(columns, is_of_second); }
}
