#include "support.h"

#include <cstdio>
#include <cstdlib>

namespace fuzz {

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz failed: %s\n", what.c_str());
  std::abort();
}

Told start(comm::Group& group, comm::OperationFacts facts, comm::Task task) {
  auto text = std::make_shared<std::string>();
  auto operation = std::make_shared<comm::Operation>();
  static_cast<comm::OperationFacts&>(*operation) = facts;
  operation->task = std::move(task);
  operation->finish = [text](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const comm::CommError& known) {
      *text = known.what();
    }
  };
  try {
    group.submit(operation);
  } catch (const comm::CommError& over) {
    *text = over.what();
    operation->is_finished = true;
  }
  return {operation, text};
}

Told start_barrier(comm::Group& group, comm::milliseconds timeout) {
  comm::OperationFacts facts;
  facts.name = "barrier";
  facts.timeout = timeout;
  const Announcement barrier{Collective::kBarrier, Dtype::kUInt8, Reduction::kNone, -1, 0, 0, 1};
  return start(group, facts, comm::share(group, barrier, Block{}, Blocks{}));
}

std::string finish(comm::Group& group, const Told& told) {
  if (!told.operation->is_finished) {
    require(group.drive(*told.operation, comm::Clock::now() + kPatience, nullptr),
            told.operation->title() + " hangs on rank " + std::to_string(group.rank()));
  }
  return *told.text;
}

}  // namespace fuzz
