// Tiles: adjacent elements that a thread loads, processes and stores together. A CUDA thread moves 16 bytes of them in
// one instruction; elsewhere a tile is one element, and the compiler vectorises the loop over tiles.

#pragma once

#include <cstdint>

#include "elementary.h"
#include "precision.h"

namespace anyaccel {

inline constexpr int kTileBytes = 16;

template <typename First, typename... Others>
inline constexpr int narrowest_bytes() {
  int bytes = static_cast<int>(sizeof(First));
  ((bytes = static_cast<int>(sizeof(Others)) < bytes ? static_cast<int>(sizeof(Others)) : bytes), ...);
  return bytes;
}

// The number of elements in a tile on a device with tiles: 16 bytes of the narrowest type that a kernel moves, so that
// a tile has the same elements in all types.
template <typename... T>
inline constexpr int kTileOf = kTileBytes / narrowest_bytes<T...>();

// The elements of a tile in a row: `Count` of them from `first` on.
template <int Count>
struct TileRange {
  static constexpr int kCount = Count;
  std::int64_t first;
};

template <typename C, int Count>
struct Tile {
  C values[Count];

  C& operator[](int i) { return values[i]; }
  const C& operator[](int i) const { return values[i]; }
};

// As many bytes as one instruction can move.
template <typename T, int Count>
struct alignas(sizeof(T) * Count) Pack {
  T values[Count];
};

template <typename T, int Count>
inline constexpr int kPackOf = Count < kTileOf<T> ? Count : kTileOf<T>;

// Reads or writes a pack in global memory. On CUDA by an instruction written here: the compiler may split an access to
// a struct into one for each element, which took three times as long.
template <typename T, int Count>
inline Pack<T, Count> pack_at(const T* place) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(Pack<T, Count>) == kTileBytes) {
    Pack<std::uint32_t, 4> words;
    asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.values[0]), "=r"(words.values[1]), "=r"(words.values[2]), "=r"(words.values[3])
                 : "l"(place)
                 : "memory");
    return bit_cast<Pack<T, Count>>(words);
  }
#endif
  return *reinterpret_cast<const Pack<T, Count>*>(place);
}

template <typename T, int Count>
inline void write(Pack<T, Count> pack, T* place) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(pack) == kTileBytes) {
    const auto words = bit_cast<Pack<std::uint32_t, 4>>(pack);
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(place), "r"(words.values[0]), "r"(words.values[1]), "r"(words.values[2]), "r"(words.values[3])
                 : "memory");
    return;
  }
#endif
  *reinterpret_cast<Pack<T, Count>*>(place) = pack;
}

// The elements of a pack as numbers to compute with, and back; 16-bit ones in pairs.
template <typename T, int Count>
inline Tile<Compute<T>, Count> values_of(Pack<T, Count> pack) {
  Tile<Compute<T>, Count> tile;
  if constexpr (sizeof(T) == 2) {
    const auto words = bit_cast<Pack<std::uint32_t, Count / 2>>(pack);
    for (int i = 0; i < Count / 2; ++i) {
      const FloatPair pair = to_floats(words.values[i], T{});
      tile[2 * i] = pair.first;
      tile[2 * i + 1] = pair.second;
    }
  } else {
    for (int i = 0; i < Count; ++i) {
      tile[i] = to_float(pack.values[i]);
    }
  }
  return tile;
}

// The pack of `Count` elements of a tile from `begin` on.
template <typename T, int Count, typename Values>
inline Pack<T, Count> packed(const Values& tile, int begin = 0) {
  if constexpr (sizeof(T) == 2) {
    Pack<std::uint32_t, Count / 2> words;
    for (int i = 0; i < Count / 2; ++i) {
      words.values[i] = bits_of(FloatPair{tile[begin + 2 * i], tile[begin + 2 * i + 1]}, T{});
    }
    return bit_cast<Pack<T, Count>>(words);
  } else {
    Pack<T, Count> pack;
    for (int i = 0; i < Count; ++i) {
      store(tile[begin + i], pack.values[i]);
    }
    return pack;
  }
}

template <typename T, int Count>
inline Tile<Compute<T>, Count> load(const T* row, TileRange<Count> range) {
  Tile<Compute<T>, Count> tile;
  if constexpr (Count == 1) {
    tile[0] = to_float(row[range.first]);
  } else {
    constexpr int kPack = kPackOf<T, Count>;
    for (int begin = 0; begin < Count; begin += kPack) {
      const auto values = values_of(pack_at<T, kPack>(row + range.first + begin));
      for (int i = 0; i < kPack; ++i) {
        tile[begin + i] = values[i];
      }
    }
  }
  return tile;
}

template <typename T, int Count>
inline void store(const Tile<Compute<T>, Count>& tile, T* row, TileRange<Count> range) {
  if constexpr (Count == 1) {
    store(tile[0], row[range.first]);
  } else {
    constexpr int kPack = kPackOf<T, Count>;
    for (int begin = 0; begin < Count; begin += kPack) {
      write(packed<T, kPack>(tile, begin), row + range.first + begin);
    }
  }
}

// Copies a tile's elements unchanged.
template <typename T, int Count>
inline void copy(const T* from, T* to, TileRange<Count> range) {
  if constexpr (Count == 1) {
    to[range.first] = from[range.first];
  } else {
    constexpr int kPack = kPackOf<T, Count>;
    for (int begin = 0; begin < Count; begin += kPack) {
      write(pack_at<T, kPack>(from + range.first + begin), to + range.first + begin);
    }
  }
}

// Unconverted 8-bit integers: `Count` of them, in one access.
template <typename T, int Count>
inline Pack<T, Count> load_bytes(const T* row, TileRange<Count> range) {
  static_assert(sizeof(T) == 1 && Count <= kTileBytes);
  if constexpr (Count == 1) {
    return {{row[range.first]}};
  } else {
    return *reinterpret_cast<const Pack<T, Count>*>(row + range.first);
  }
}

template <int Bytes>
inline auto word_of() {
  if constexpr (Bytes == 4) {
    return std::uint32_t{};
  } else {
    static_assert(Bytes == 2);
    return std::uint16_t{};
  }
}

// Stores the results of `body(i)` for a tile's elements, in one access. Packing them into words at once takes fewer
// registers than a tile of bytes.
template <typename T, int Count, typename Body>
inline void store_bytes(T* row, TileRange<Count> range, const Body& body) {
  static_assert(sizeof(T) == 1 && Count <= kTileBytes);
  if constexpr (Count == 1) {
    row[range.first] = static_cast<T>(body(0));
  } else {
    using Word = decltype(word_of<(Count < 4 ? Count : 4)>());
    constexpr int kBytes = sizeof(Word);
    Pack<Word, Count / kBytes> words;
    for (int first = 0; first < Count; first += kBytes) {
      std::uint32_t word = 0;
      for (int i = 0; i < kBytes; ++i) {
        word |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(body(first + i))) << (8 * i);
      }
      words.values[first / kBytes] = static_cast<Word>(word);
    }
    *reinterpret_cast<Pack<Word, Count / kBytes>*>(row + range.first) = words;
  }
}

// The left and the right elements of adjacent pairs; the range counts pairs.
template <typename C, int Count>
struct Pairs {
  Tile<C, Count> left;
  Tile<C, Count> right;
};

template <typename T, int Count>
inline Pairs<Compute<T>, Count> load_pairs(const T* row, TileRange<Count> range) {
  Pairs<Compute<T>, Count> pairs;
  if constexpr (Count == 1) {
    pairs.left[0] = to_float(row[2 * range.first]);
    pairs.right[0] = to_float(row[2 * range.first + 1]);
  } else {
    const auto both = load(row, TileRange<2 * Count>{2 * range.first});
    for (int i = 0; i < Count; ++i) {
      pairs.left[i] = both[2 * i];
      pairs.right[i] = both[2 * i + 1];
    }
  }
  return pairs;
}

template <typename T, int Count>
inline void store_pairs(const Pairs<Compute<T>, Count>& pairs, T* row, TileRange<Count> range) {
  if constexpr (Count == 1) {
    store(pairs.left[0], row[2 * range.first]);
    store(pairs.right[0], row[2 * range.first + 1]);
  } else {
    Tile<Compute<T>, 2 * Count> both;
    for (int i = 0; i < Count; ++i) {
      both[2 * i] = pairs.left[i];
      both[2 * i + 1] = pairs.right[i];
    }
    store(both, row, TileRange<2 * Count>{2 * range.first});
  }
}

// The sum of `body(i)` over a tile's elements.
template <typename Range, typename Body>
inline auto sum_over(Range, const Body& body) {
  auto total = body(0);
  for (int i = 1; i < Range::kCount; ++i) {
    total += body(i);
  }
  return total;
}

// The maximum of `body(i)` over a tile's elements; NaNs are skipped here, or for tiles of one element by the caller.
template <typename Range, typename Body>
inline auto max_over(Range, const Body& body) {
  auto largest = body(0);
  if constexpr (Range::kCount > 1) {
    largest = largest == largest ? largest : -infinity<decltype(largest)>();
    for (int i = 1; i < Range::kCount; ++i) {
      largest = larger(largest, body(i));
    }
  }
  return largest;
}

// Whether tiles can start at these addresses.
template <typename... Pointers>
inline bool are_aligned(const Pointers*... pointers) {
  return (... && (reinterpret_cast<std::uintptr_t>(pointers) % kTileBytes == 0));
}

// Whether every row can be processed in tiles if the first can: rows of types T have this distance or length.
template <typename... T, typename... Distances>
inline bool keep_aligned(Distances... distances) {
  return (... && (distances % kTileOf<T...> == 0));
}

}  // namespace anyaccel
