// Random writes and reads of a file against a copy in memory, from several threads with their own handles:
// stress FOLDER ROUNDS SEED BACKEND. It prints only differences.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "handle.h"

using namespace anyaccel::async_io;

namespace {

constexpr std::int64_t kFile = 300000;

struct Files {
  explicit Files(const std::string& path) {
    buffered = open(path.c_str(), O_RDWR | O_CREAT, 0600);
    direct = open(path.c_str(), O_RDWR | O_DIRECT, 0600);
  }
  ~Files() {
    close(buffered);
    if (direct >= 0) {
      close(direct);
    }
  }
  int buffered, direct;
};

void run(const std::string& path, int rounds, unsigned seed, Backend backend) {
  std::mt19937 numbers(seed);
  const Files files(path);
  std::vector<char> expected(kFile), memory(kFile + 64), read(kFile + 64), overlapped(kFile), in_flight;
  if (files.buffered < 0 || pwrite(files.buffered, expected.data(), kFile, 0) != kFile) {
    std::printf("no file at %s\n", path.c_str());
    return;
  }
  for (int round = 0; round < rounds; ++round) {
    const int threads = 1 + static_cast<int>(numbers() % 3);
    Handle handle(1 + static_cast<int>(numbers() % 40000), 1 + static_cast<int>(numbers() % 9), threads, backend);
    // Pieces of the file that share no page, as transfers in any order may not overlap.
    std::vector<std::int64_t> cuts{0, kFile};
    for (int i = 0; i < 5; ++i) {
      cuts.push_back(static_cast<std::int64_t>(numbers() % (kFile / kAlignment)) * kAlignment);
    }
    std::sort(cuts.begin(), cuts.end());
    for (char& byte : memory) {
      byte = static_cast<char>(numbers());
    }
    overlapped.assign(memory.begin(), memory.begin() + kFile);
    in_flight = overlapped;
    const std::int64_t shift = numbers() % 2 == 0 ? 0 : static_cast<std::int64_t>(numbers() % 64);
    for (const bool is_read : {false, true}) {
      std::vector<OperationOutcome> outcomes(cuts.size() - 1);
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        std::int64_t begin = cuts[i];
        std::int64_t end = cuts[i + 1];
        if (begin < end) {
          begin += static_cast<std::int64_t>(numbers()) % (end - begin);
          end -= static_cast<std::int64_t>(numbers()) % (end - begin);
        }
        char* const place = (is_read ? read : memory).data() + shift + begin;
        if (!is_read) {
          std::memcpy(expected.data() + begin, place, static_cast<std::size_t>(end - begin));
        } else {
          std::memset(place, 0x5a, static_cast<std::size_t>(end - begin));
        }
        handle.start({&outcomes[i], is_read, files.direct, files.buffered, place, end - begin, begin});
        if (is_read) {
          handle.wait();
          if (std::memcmp(place, expected.data() + begin, static_cast<std::size_t>(end - begin)) != 0) {
            std::printf("seed %u, round %d: other bytes in %ld to %ld\n", seed, round, begin, end);
          }
        }
      }
      handle.wait();
      for (const OperationOutcome& outcome : outcomes) {
        if (!outcome.has_ended() || outcome.has_failed != 0) {
          std::printf("seed %u, round %d: state %ld, error %ld\n", seed, round, outcome.state, outcome.error);
        }
      }
    }
    // Operations on bytes that others move too take effect in the order in which they were started.
    std::vector<OperationOutcome> outcomes(24);
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      const bool is_read = numbers() % 3 == 0;
      const auto begin = static_cast<std::int64_t>(numbers() % (kFile / 2));
      const auto bytes = static_cast<std::int64_t>(numbers() % (kFile / 3));
      if (is_read) {
        std::memcpy(overlapped.data() + begin, expected.data() + begin, static_cast<std::size_t>(bytes));
      } else {
        std::memcpy(expected.data() + begin, overlapped.data() + begin / 2, static_cast<std::size_t>(bytes));
      }
      char* const place = in_flight.data() + (is_read ? begin : begin / 2);
      handle.start({&outcomes[i], is_read, files.direct, files.buffered, place, bytes, begin});
    }
    handle.wait();
    read.assign(read.size(), 0);
    if (pread(files.buffered, read.data(), kFile, 0) != kFile ||
        std::memcmp(read.data(), expected.data(), kFile) != 0 || in_flight != overlapped) {
      std::printf("seed %u, round %d: overlapping operations in another order\n", seed, round);
    }
    // A read across the end of the file: all that is before the end arrives, and the failure names the end.
    const std::int64_t before = 1 + static_cast<std::int64_t>(numbers() % 100000);
    const std::int64_t behind = 1 + static_cast<std::int64_t>(numbers() % 100000);
    OperationOutcome failure;
    handle.start({&failure, true, files.direct, files.buffered, read.data(), before + behind, kFile - before});
    handle.wait();
    if (failure.has_failed == 0 || failure.error != 0 || failure.offset != kFile || failure.moved != before ||
        std::memcmp(read.data(), expected.data() + kFile - before, static_cast<std::size_t>(before)) != 0) {
      std::printf("seed %u, round %d: %ld bytes before the end; error %ld at %ld, %ld moved\n", seed, round, before,
                  failure.error, failure.offset, failure.moved);
    }
  }
}

}  // namespace

int main(int, char** arguments) {
  const int rounds = std::atoi(arguments[2]);
  const unsigned seed = static_cast<unsigned>(std::atoi(arguments[3]));
  const std::map<std::string, Backend> ways = {
      {"best", Backend::best}, {"kernel_aio", Backend::kernel_aio}, {"threads", Backend::threads}};
  const Backend backend = ways.at(arguments[4]);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 3; ++i) {
    const std::string path = std::string(arguments[1]) + "/" + std::to_string(i);
    threads.emplace_back([=] { run(path, rounds, 3 * seed + i, backend); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}
