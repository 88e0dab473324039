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

// Two ranks of one thread, each of which does only what it is told to.
struct Pair {
  std::shared_ptr<comm::Segment> segment = std::make_shared<comm::Segment>(comm::Segment::create(2), 2);
  comm::GroupPtr first = std::make_shared<comm::Group>(segment, 0, 0);
  comm::GroupPtr second = std::make_shared<comm::Group>(segment, 1, 1);
};

Told start_barrier(comm::Group& group, comm::milliseconds timeout = kPatience);

void check_all();
void check_refusals();
void check_between_hosts();

}  // namespace fuzz
