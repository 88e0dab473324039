// Barriers, and shuffles and votes of a warp's lanes. They are macros because each place in the source needs its own
// site.

#pragma once

#include <type_traits>

namespace emulator {

inline unsigned lane() { return thread_number() % kWarp; }

// CUDA shuffles 4 and 8 bytes, and its 2-byte floats; smaller integers become an int, as in any call.
template <typename Value>
using Shuffled = std::conditional_t<std::is_integral_v<Value> && sizeof(Value) < 4, int, Value>;

template <typename Value>
EMULATOR_UNCHECKED Value taken(const Site& site, Lanes mask, Value value, unsigned source) {
  static_assert(sizeof(Value) == 2 || sizeof(Value) == 4 || sizeof(Value) == 8, "CUDA shuffles 2, 4 or 8 bytes");
  std::uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(Value));
  bits = gather(site, mask, bits, source)[source % kWarp];
  __builtin_memcpy(&value, &bits, sizeof(Value));
  return value;
}

// Returns the first lane of this lane's group; groups have `width` lanes, a power of two.
inline unsigned group_of(int width) { return lane() & ~(static_cast<unsigned>(width) - 1); }

template <typename Value>
Shuffled<Value> shuffle(const Site& site, Lanes mask, Value value, int source, int width = kWarp) {
  return taken<Shuffled<Value>>(site, mask, value, group_of(width) + (source & (width - 1)));
}

template <typename Value>
Shuffled<Value> shuffle_down(const Site& site, Lanes mask, Value value, unsigned distance, int width = kWarp) {
  const unsigned source = lane() + distance;
  return taken<Shuffled<Value>>(site, mask, value, source < group_of(width) + width ? source : lane());
}

template <typename Value>
Shuffled<Value> shuffle_up(const Site& site, Lanes mask, Value value, unsigned distance, int width = kWarp) {
  return taken<Shuffled<Value>>(site, mask, value, lane() >= group_of(width) + distance ? lane() - distance : lane());
}

template <typename Value>
Shuffled<Value> shuffle_xor(const Site& site, Lanes mask, Value value, int other, int width = kWarp) {
  const unsigned source = lane() ^ static_cast<unsigned>(other);
  return taken<Shuffled<Value>>(site, mask, value, source < group_of(width) + width ? source : lane());
}

// Returns the lanes that the block has of this warp; its last warp may have fewer.
inline Lanes lanes_of_block() {
  const unsigned left = block_size.x * block_size.y * block_size.z - thread_number() / kWarp * kWarp;
  return left >= kWarp ? ~Lanes{0} : (Lanes{1} << left) - 1;
}

// Calls `visit` with the value of each lane in the mask.
template <typename Value, typename Visit>
EMULATOR_UNCHECKED void visit_lanes(const Site& site, Lanes mask, Value value, Visit visit) {
  std::uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(Value));
  const std::uint64_t* const given = gather(site, mask, bits, lane());
  const Lanes present = mask & lanes_of_block();
  for (unsigned other = 0; other < kWarp; ++other) {
    if ((present >> other & 1u) != 0) {
      Value theirs;
      __builtin_memcpy(&theirs, &given[other], sizeof(Value));
      visit(other, theirs);
    }
  }
}

EMULATOR_UNCHECKED inline Lanes ballot(const Site& site, Lanes mask, int is_true) {
  Lanes result = 0;
  visit_lanes(site, mask, is_true != 0,
              [&](unsigned other, bool theirs) EMULATOR_UNCHECKED { result |= static_cast<Lanes>(theirs) << other; });
  return result;
}

EMULATOR_UNCHECKED inline bool are_all(const Site& site, Lanes mask, int is_true) {
  return ballot(site, mask, is_true == 0) == 0;
}

template <typename Value>
EMULATOR_UNCHECKED Lanes matching(const Site& site, Lanes mask, Value value) {
  Lanes result = 0;
  visit_lanes(site, mask, value, [&](unsigned other, Value theirs) EMULATOR_UNCHECKED {
    const bool is_same = __builtin_memcmp(&theirs, &value, sizeof(Value)) == 0;  // bits: NaN matches, and 0 not -0
    result |= static_cast<Lanes>(is_same) << other;
  });
  return result;
}

template <typename Combine, typename Value>
EMULATOR_UNCHECKED Value reduced(const Site& site, Combine combine, Lanes mask, Value value) {
  static_assert(std::is_same_v<Value, int> || std::is_same_v<Value, unsigned>, "CUDA reduces int and unsigned");
  bool is_first = true;
  Value result{};
  visit_lanes(site, mask, value, [&](unsigned, Value theirs) EMULATOR_UNCHECKED {
    result = is_first ? theirs : combine(result, theirs);
    is_first = false;
  });
  return result;
}

}  // namespace emulator

#define __syncthreads() static_cast<void>(::emulator::barrier(EMULATOR_SITE("__syncthreads")))
#define __syncthreads_count(...) \
  static_cast<int>(::emulator::barrier(EMULATOR_SITE("__syncthreads_count"), (__VA_ARGS__) != 0))
#define __syncthreads_or(...) \
  static_cast<int>(::emulator::barrier(EMULATOR_SITE("__syncthreads_or"), (__VA_ARGS__) != 0) != 0)
#define __syncthreads_and(...) \
  static_cast<int>(::emulator::barrier(EMULATOR_SITE("__syncthreads_and"), (__VA_ARGS__) == 0) == 0)
#define __syncwarp(...) \
  ::emulator::sync_warp(EMULATOR_SITE("__syncwarp"), ~::emulator::Lanes{0} __VA_OPT__(&(__VA_ARGS__)))

#define __shfl_sync(...) ::emulator::shuffle(EMULATOR_SITE("__shfl_sync"), __VA_ARGS__)
#define __shfl_xor_sync(...) ::emulator::shuffle_xor(EMULATOR_SITE("__shfl_xor_sync"), __VA_ARGS__)
#define __shfl_down_sync(...) ::emulator::shuffle_down(EMULATOR_SITE("__shfl_down_sync"), __VA_ARGS__)
#define __shfl_up_sync(...) ::emulator::shuffle_up(EMULATOR_SITE("__shfl_up_sync"), __VA_ARGS__)
#define __ballot_sync(...) ::emulator::ballot(EMULATOR_SITE("__ballot_sync"), __VA_ARGS__)
#define __any_sync(...) static_cast<int>(::emulator::ballot(EMULATOR_SITE("__any_sync"), __VA_ARGS__) != 0)
#define __all_sync(...) static_cast<int>(::emulator::are_all(EMULATOR_SITE("__all_sync"), __VA_ARGS__))
#define __match_any_sync(...) ::emulator::matching(EMULATOR_SITE("__match_any_sync"), __VA_ARGS__)
#define EMULATOR_REDUCED(name, combine, ...) \
  ::emulator::reduced(EMULATOR_SITE(name), [](auto left, auto right) { return combine; }, __VA_ARGS__)
#define __reduce_add_sync(...) EMULATOR_REDUCED("__reduce_add_sync", left + right, __VA_ARGS__)
#define __reduce_min_sync(...) EMULATOR_REDUCED("__reduce_min_sync", left < right ? left : right, __VA_ARGS__)
#define __reduce_max_sync(...) EMULATOR_REDUCED("__reduce_max_sync", left < right ? right : left, __VA_ARGS__)
#define __reduce_and_sync(...) EMULATOR_REDUCED("__reduce_and_sync", left& right, __VA_ARGS__)
#define __reduce_or_sync(...) EMULATOR_REDUCED("__reduce_or_sync", left | right, __VA_ARGS__)
#define __reduce_xor_sync(...) EMULATOR_REDUCED("__reduce_xor_sync", left ^ right, __VA_ARGS__)

EMULATOR_HAS_NO("__activemask: name the lanes in the mask") unsigned __activemask();

inline void __threadfence() { ::emulator::fence(); }
inline void __threadfence_system() { ::emulator::fence(); }
inline void __threadfence_block() {}
inline void __nanosleep(unsigned) {}
#define __trap() ::emulator::trap(EMULATOR_SITE("__trap"))

template <typename Value>
inline Value __ldg(const Value* address) {
  return *address;
}
