// Data that a block of GPU threads keeps in registers: a row between passes, and column totals from row to row;
// row.h describes each member.

#pragma once

#include "block_group.h"

namespace anyaccel {

// The memory of a tile. As words: compilers keep each of an array's 16-bit numbers in a register of its own.
using TileWords = Pack<std::uint32_t, kTileBytes / 4>;

template <typename T>
TileWords words_at(const T* place) {
  return bit_cast<TileWords>(pack_at<T, kTileOf<T>>(place));
}

// A tile that a thread keeps, as computed values.
template <typename Of, typename T, int Count>
struct KeptTile {
  void keep(const TileWords& read, int first, const Of& of) {
    tile = values_of(bit_cast<Pack<T, Count>>(read));
    for (int i = 0; i < Count; ++i) {
      tile[i] = of(first + i, tile[i]);
    }
  }

  const Tile<Compute<T>, Count>& values() const { return tile; }

  Tile<Compute<T>, Count> tile;
};

// A tile that a thread keeps as it is in memory.
template <typename T, int Count>
struct KeptTile<AsTheyAre, T, Count> {
  void keep(const TileWords& read, int, const AsTheyAre&) { words = read; }

  // Converts again in each pass: the compiler would keep the results, which take twice the registers of 16-bit numbers.
  Tile<Compute<T>, Count> values() const {
    TileWords read = words;
#if defined(__CUDA_ARCH__)
    if constexpr (sizeof(T) == 2) {
      for (std::uint32_t& word : read.values) {
        asm volatile("" : "+r"(word));
      }
    }
#endif
    return values_of(bit_cast<Pack<T, Count>>(read));
  }

  TileWords words;
};

// Calls `body(number, first)` for this thread's tiles of the row: every blockDim.x-th of `count` elements,
// at most `kTiles` tiles per thread. `count` is a multiple of a tile's elements.
template <int kCount, int kTiles, typename Body>
void each_tile_of_thread(int count, const Body& body) {
#pragma unroll
  for (int number = 0; number < kTiles; ++number) {
    const int first = static_cast<int>(threadIdx.x + number * blockDim.x) * kCount;
    if (first < count) {
      body(number, first);
    }
  }
}

// A row, read once and kept by the block's threads. All of a thread's tiles are loaded before any is used.
template <int kLanes>
template <typename Of, typename T, typename... Beside>
class BlockGroup<kLanes>::RowInRegisters {
 public:
  using C = Compute<T>;
  static constexpr bool kReplaces = true;

  RowInRegisters(const BlockGroup& group, int count, const Of& of) : group_(group), count_(count), of_(of) {}

  void read(const T* row) {
    TileWords read[kTiles] = {};
    each_tile([&](int number, int first) { read[number] = words_at(row + first); });
    each_tile([&](int number, int first) { kept_[number].keep(read[number], first, of_); });
  }

  void read_sum(const T* left, const T* right, T* sum) {
    each_tile([&](int number, int first) {
      auto values = load(left, TileRange<kCount>{first});
      const auto others = load(right, TileRange<kCount>{first});
      for (int i = 0; i < kCount; ++i) {
        values[i] += others[i];
      }
      const auto both = packed<T, kCount>(values);
      write(both, sum + first);
      kept_[number].keep(bit_cast<TileWords>(both), first, of_);
    });
  }

  template <typename Body>
  C sum(const Body& body) {
    C total = 0;
    each([&](auto range, const auto& tile) { total += sum_over(range, [&](int i) { return body(tile[i]); }); });
    return group_.combined(total, C(0), [](C left, C right) { return left + right; });
  }

  template <typename Body>
  C sum_with(const RowInRegisters& other, const Body& body) const {
    C total = 0;
    each_with(other, [&](auto range, const auto& tile, const auto& beside) {
      total += sum_over(range, [&](int i) { return body(tile[i], beside[i]); });
    });
    return group_.combined(total, C(0), [](C left, C right) { return left + right; });
  }

  template <typename Body>
  void each_with(const RowInRegisters& other, const Body& body) const {
    each_tile([&](int number, int first) {
      body(TileRange<kCount>{first}, kept_[number].values(), other.kept_[number].values());
    });
  }

  template <typename Body>
  C replace_and_sum(T*, const Body& body) {
    C total = 0;
    each_tile([&](int number, int) {
      for (int i = 0; i < kCount; ++i) {
        kept_[number].tile[i] = body(kept_[number].tile[i]);
        total += kept_[number].tile[i];
      }
    });
    return group_.combined(total, C(0), [](C left, C right) { return left + right; });
  }

  template <typename Body>
  C max(const Body& body) {
    C largest = -infinity<C>();
    each([&](auto range, const auto& tile) {
      for (int i = 0; i < range.kCount; ++i) {
        largest = larger(largest, body(tile[i]));
      }
    });
    return group_.largest_of_all(largest);
  }

  C max() {
    return max([](C value) { return value; });
  }

  template <typename Body>
  void each(const Body& body) {
    each_tile([&](int number, int first) { body(TileRange<kCount>{first}, kept_[number].values()); });
  }

  template <typename Body>
  void each_new(const Body& body) {
    each(body);
  }

 private:
  static constexpr int kCount = kTileOf<T, Beside...>;
  static constexpr int kTiles = kKept<Of, T> / kCount;
  static_assert(sizeof(T) * kCount == kTileBytes, "a row's elements are its narrowest");

  template <typename Body>
  void each_tile(const Body& body) const {
    each_tile_of_thread<kCount, kTiles>(count_, body);
  }

  const BlockGroup& group_;
  int count_;
  Of of_;
  KeptTile<Of, T, kCount> kept_[kTiles] = {};  // otherwise the registers would be kept from row to row
};

// Numbers, every blockDim.x-th of which is a thread's.
template <int kLanes>
template <typename C>
class BlockGroup<kLanes>::ValuesInRegisters {
 public:
  ValuesInRegisters(const BlockGroup& group, int count, C* place) : group_(group), count_(count), place_(place) {}

  template <typename Body>
  void fill(const Body& body) {
    each([&](int i, C& value) { value = body(i); });
  }

  template <typename Body>
  void change(const Body& body) {
    each([&](int, C& value) { value = body(value); });
  }

  C sum() {
    C total = 0;
    each([&](int, C& value) { total += value; });
    return group_.combined(total, C(0), [](C left, C right) { return left + right; });
  }

  template <typename Body>
  C max(const Body& body) {
    C largest = -infinity<C>();
    each([&](int i, C& value) { largest = larger(largest, body(i, value)); });
    return group_.largest_of_all(largest);
  }

  void publish() {
    each([&](int i, C& value) { place_[i] = value; });
  }

  void replace(std::int64_t number, C by) {
    each([&](int i, C& value) { value = i == number ? by : value; });
  }

  void restore(std::int64_t, C) {}  // its memory was not changed

 private:
  // In a loop of constant length, as an index known to the compiler keeps an element in a register.
  template <typename Body>
  void each(const Body& body) {
#pragma unroll
    for (int number = 0; number < kKeptValues; ++number) {
      const int i = static_cast<int>(threadIdx.x + number * blockDim.x);
      if (i < count_) {
        body(i, values_[number]);
      }
    }
  }

  const BlockGroup& group_;
  int count_;
  C* place_;
  C values_[kKeptValues] = {};
};

// Column totals; each thread has its own for its tiles of every row.
template <int kLanes>
template <int Kinds, typename T, typename... Beside>
class BlockGroup<kLanes>::TotalsInRegisters {
 public:
  using C = Compute<T>;

  explicit TotalsInRegisters(int count) : count_(count) {}

  template <typename Body>
  void each(const Body& body) {
    each_tile([&](int number, int first) { body(TileRange<kCount>{first}, totals_[number]); });
  }

  void write(C* place) const {
    each_tile([&](int number, int first) {
      for (int kind = 0; kind < Kinds; ++kind) {
        store(totals_[number][kind], place + kind * count_, TileRange<kCount>{first});
      }
    });
  }

 private:
  static constexpr int kCount = kTileOf<T, Beside...>;
  static constexpr int kTiles = kKeptTotals / Kinds / kCount;

  template <typename Body>
  void each_tile(const Body& body) const {
    each_tile_of_thread<kCount, kTiles>(count_, body);
  }

  int count_;
  Tile<C, kCount> totals_[kTiles][Kinds] = {};
};

}  // namespace anyaccel
