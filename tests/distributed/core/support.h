// What the checks and the fuzzer of csrc/comm share.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives.h"
#include "errors.h"
#include "progress.h"

namespace comm = anyaccel::comm;
using comm::Announcement;
using comm::Block;
using comm::Blocks;
using comm::Collective;
using comm::Dtype;
using comm::Reduction;

namespace fuzz {

constexpr std::chrono::seconds kPatience{60};

// Ends the process, with a core of what every thread does, unless something holds.
void require(bool holds, const std::string& what);

template <typename T>
Block block_of(std::vector<T>& values) {
  return {reinterpret_cast<unsigned char*>(values.data()), static_cast<std::int64_t>(values.size())};
}

// An operation, and the text of its error, complete once it is finished.
struct Told {
  comm::OperationPtr operation;
  std::shared_ptr<std::string> text;
};

// Submits an operation; if the group takes none, its error is told like that of one that failed.
Told start(comm::Group& group, comm::OperationFacts facts, comm::Task task);

// Drives the operation to its end, and returns the text of its error, or an empty one.
std::string finish(comm::Group& group, const Told& told);

void check_all();

}  // namespace fuzz
