// Several tensors in one launch: their addresses, passed by value within the 4 KB that a kernel's argument may take,
// and the chunks that groups work on.

#pragma once

#include <cstdint>

#include "tile.h"

namespace anyaccel {

// Elements of a chunk: a few tiles for each of a group's threads, and enough chunks of a large tensor for a device.
inline constexpr std::int64_t kChunk = 4096;

// Larger tensors have larger chunks: each chunk keeps a number for a tensor's norm.
inline constexpr std::int64_t kMostChunks = 4096;

// A tensor's chunks depend on its size alone, and so does the order in which its elements are added up.
inline std::int64_t chunk_of(std::int64_t elements) {
  std::int64_t chunk = kChunk;
  while (chunk * kMostChunks < elements) {
    chunk *= 2;
  }
  return chunk;
}

// An empty tensor has one, empty.
inline std::int64_t chunks_of(std::int64_t elements) {
  const std::int64_t chunk = chunk_of(elements);
  return elements == 0 ? 1 : (elements + chunk - 1) / chunk;
}

// What a group works on at once: the elements [begin, begin + elements) of a tensor.
struct Chunk {
  std::int32_t number;  // of the tensor
  std::int64_t index;   // which of the tensor's chunks
  std::int64_t count;   // of the tensor's chunks
  std::int64_t begin;
  std::int64_t elements;
};

template <int Roles>
struct TensorTable {
  static constexpr std::int32_t kCapacity = 3600 / (8 * (Roles + 1) + 4);

  std::int64_t ends[kCapacity];  // of each tensor's elements, counted through all tensors
  void* data[kCapacity][Roles];
  std::int32_t chunk_ends[kCapacity];  // of each tensor's chunks, counted in the same way
  std::int32_t count;
  std::int32_t first;  // which of a call's tensors is number 0

  void add(std::int64_t elements, void* const (&pointers)[Roles]) {
    const std::int32_t chunks_before = chunks();
    ends[count] = (count == 0 ? 0 : ends[count - 1]) + elements;
    chunk_ends[count] = chunks_before + static_cast<std::int32_t>(chunks_of(elements));
    for (int role = 0; role < Roles; ++role) {
      data[count][role] = pointers[role];
    }
    ++count;
  }

  std::int64_t elements() const { return count == 0 ? 0 : ends[count - 1]; }
  std::int32_t chunks() const { return count == 0 ? 0 : chunk_ends[count - 1]; }
  std::int64_t elements_of(std::int32_t number) const { return ends[number] - (number == 0 ? 0 : ends[number - 1]); }

  Chunk chunk(std::int64_t wanted) const {
    std::int32_t low = 0;
    std::int32_t high = count - 1;
    while (low < high) {
      const std::int32_t middle = (low + high) / 2;
      if (wanted < chunk_ends[middle]) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    const std::int64_t chunks_before = low == 0 ? 0 : chunk_ends[low - 1];
    const std::int64_t elements = elements_of(low);
    const std::int64_t size = chunk_of(elements);
    const std::int64_t index = wanted - chunks_before;
    const std::int64_t rest = elements - index * size;
    return {low, index, chunk_ends[low] - chunks_before, index * size, rest < size ? rest : size};
  }

  // Whether a tensor may be worked on in tiles, and so may its chunks.
  bool is_aligned(std::int32_t number) const {
    std::uintptr_t bits = 0;
    for (int role = 0; role < Roles; ++role) {
      bits |= reinterpret_cast<std::uintptr_t>(data[number][role]);
    }
    return bits % kTileBytes == 0;
  }

  template <typename T>
  T* at(std::int32_t number, int role) const {
    return static_cast<T*>(data[number][role]);
  }
};

// What decides on the device whether and how a step is taken, so that the host need not wait, and a replayed graph sees
// it change. Each is null when there is none.
struct StepControl {
  const std::int32_t* skip;  // no step where it is not zero, as after an overflow
  const float* grad_scale;   // gradients are divided by it
  const float* lr;           // in place of the host's
  const float* steps;        // the steps taken so far, one for each of a call's tensors, in place of the host's

  bool is_skipped() const { return skip != nullptr && *skip != 0; }
  float grad_factor() const { return grad_scale == nullptr ? 1.0f : 1.0f / *grad_scale; }
};

}  // namespace anyaccel
