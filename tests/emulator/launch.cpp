// The emulator as a device of the ops' host libraries. It varies the block sizes that a kernel runs with.

#include <cstdint>
#include <cstdio>
#include <iterator>
#include <map>
#include <mutex>
#include <string>

#include "scheduler.h"

namespace {

using emulator::Kernel;

std::mutex& launches() {
  static std::mutex one;
  return one;
}

// The launches of a kernel so far.
struct Started {
  unsigned launches = 0;
  unsigned sizes = 0;  // block sizes, one bit each
};

std::map<std::string, Started>& started() {
  static auto* const one = new std::map<std::string, Started>;
  return *one;
}

// Two warps, the most threads, and one warp; each kernel runs with them in turn.
constexpr unsigned kSizes[] = {2 * emulator::kWarp, 512, emulator::kWarp};
// The most for kernels that keep totals, whose results each have a block's index.
constexpr unsigned kMostWithTotals = 1024;
// Every second launch has at most this many blocks, so that each processes several rows.
constexpr std::int64_t kFewBlocks = 3;

unsigned fixed_size = 0;

}  // namespace

// Sets the number of threads of every block, and launches as many blocks as the host requests; 0 varies both.
extern "C" void emulator_fix_size(unsigned threads) { fixed_size = threads; }

// Returns lines of `kernel threads...`, valid until the next call.
extern "C" const char* emulator_started() {
  static std::string text;
  const std::lock_guard lock(launches());
  text.clear();
  for (const auto& [name, known] : started()) {
    text += name + "\t";
    for (const unsigned size : {32u, 64u, 128u, 256u, 512u, kMostWithTotals}) {
      text += (known.sizes & size) != 0 ? " " + std::to_string(size) : "";
    }
    text += "\n";
  }
  return text.c_str();
}

// The LaunchFunction of csrc/runtime/device_kernels.h.
extern "C" const char* emulator_launch(void* kernel, std::int32_t, std::int64_t groups, std::int32_t,
                                       std::int32_t groups_of_a_block, const void* argument, std::size_t bytes) {
  static thread_local char message[1024];
  const std::lock_guard lock(launches());
  const Kernel& chosen = *static_cast<const Kernel*>(kernel);
  Started& known = started()[chosen.name];
  const unsigned next = kSizes[known.launches % std::size(kSizes)];
  const unsigned varied = chosen.is_grid_meant && next == 512 ? kMostWithTotals : next;
  const unsigned size = fixed_size != 0 ? fixed_size : varied;
  const bool has_few = fixed_size == 0 && !chosen.is_grid_meant && known.launches % 2 == 1;
  const std::int64_t blocks = has_few && groups > kFewBlocks ? kFewBlocks : groups;
  ++known.launches;
  known.sizes |= size;
  const unsigned together = size == emulator::kWarp && fixed_size == 0 ? static_cast<unsigned>(groups_of_a_block) : 1;
  const std::string problem =
      emulator::run(chosen, {{static_cast<unsigned>(blocks), 1, 1}, {size, together, 1}, argument, bytes, 0});
  if (problem.empty()) {
    return nullptr;
  }
  std::snprintf(message, sizeof(message), "%s", problem.c_str());
  return message;
}
