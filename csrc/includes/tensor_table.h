// Several tensors in one launch: their addresses, passed by value within the 4 KB limit of a kernel's arguments,
// and the chunks that groups work on.

#pragma once

#include <cstdint>

#include "tile.h"

namespace anyaccel {

// Elements per chunk: a few tiles for each of a group's threads, and enough chunks of a large tensor for a device.
inline constexpr std::int64_t kChunk = 4096;

// Large tensors have larger chunks: each chunk stores a number for a tensor's norm.
inline constexpr std::int64_t kMostChunks = 4096;

// A tensor's chunks, and so the order in which its elements are summed, depend only on its size.
inline std::int64_t chunk_of(std::int64_t elements) {
  std::int64_t chunk = kChunk;
  while (chunk * kMostChunks < elements) {
    chunk *= 2;
  }
  return chunk;
}

// An empty tensor has one empty chunk.
inline std::int64_t chunks_of(std::int64_t elements) {
  const std::int64_t chunk = chunk_of(elements);
  return elements == 0 ? 1 : (elements + chunk - 1) / chunk;
}

// The unit of a group's work: the elements [begin, begin + elements) of a tensor.
struct Chunk {
  std::int32_t number;  // the tensor's number
  std::int64_t index;   // the chunk's index in its tensor
  std::int64_t count;   // the number of the tensor's chunks
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
  std::int32_t first;  // the index in the call of tensor number 0

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

  // Whether a tensor, and so its chunks, can be processed in tiles.
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

// Values on the device that decide whether and how a step is taken, so that the host does not wait, and a replayed
// graph sees changes. Each is null when there is none.
struct StepControl {
  const std::int32_t* skip;  // no step if it is not zero, such as after an overflow
  const float* grad_scale;   // gradients are divided by it
  const float* lr;           // replaces the host's value
  const float* steps;        // the number of steps so far, one per tensor of a call; replaces the host's value

  bool is_skipped() const { return skip != nullptr && *skip != 0; }
  float grad_factor() const { return grad_scale == nullptr ? 1.0f : 1.0f / *grad_scale; }
};

}  // namespace anyaccel
