#include "rank.h"

#include <algorithm>
#include <csignal>
#include <numeric>
#include <thread>

namespace fuzz {
namespace {

constexpr std::size_t kSizes[] = {0, 1, 7, 33, 500, 4096, 5000, 20'000};
constexpr std::size_t kLargeSizes[] = {100'000, 300'001};
constexpr std::size_t kInFlight = 12;
constexpr comm::milliseconds kShortTimeout{100};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

Rank::Rank(comm::GroupPtr group, const Plan& plan)
    : group_(std::move(group)),
      plan_(plan),
      random_(plan.seed),
      of_my_own_(plan.seed * 1000 + group_->rank()),
      me_(group_->rank()),
      world_(group_->world()) {}

std::map<std::string, int> Rank::run() {
  const bool is_victim = plan_.end != End::kLeft && plan_.victim == me_;
  for (int i = 0; i < plan_.operations && !is_over_; ++i) {
    if (plan_.end != End::kLeft && i == plan_.at) {
      if (plan_.end != End::kKilled) pass_barrier();
      may_end_ = true;
      if (is_victim && plan_.end == End::kKilled && plan_.dies) std::raise(SIGKILL);
      if (is_victim && plan_.end == End::kKilled) group_->leave("left in the middle");
      if (is_victim && plan_.end == End::kAborted) group_->fail("aborted by the fuzzer");
      if (plan_.end == End::kLate) {
        timeout_ = kShortTimeout;
        if (is_victim) wait_for_failure();
        pass_barrier();
        continue;
      }
    }
    may_end_ = may_end_ || plan_.end == End::kKilled;  // the others may be ahead
    operate();
    conclude_some(of_my_own_() % (kInFlight + 1));
  }
  if (plan_.end == End::kLeft) pass_barrier();
  conclude_some(0);
  require(plan_.end == End::kLeft || is_over_, "a group went on after its end");
  return done_;
}

// The number of operations is counted; the kinds that can fail are drawn less often.
void Rank::operate() {
  using Kind = std::pair<const char*, void (Rank::*)(Pending&)>;
  constexpr Kind kKinds[] = {
      {"all_reduce", &Rank::all_reduce},
      {"coalesced", &Rank::coalesced},
      {"broadcast", &Rank::broadcast},
      {"all_gather", &Rank::all_gather},
      {"gather", &Rank::gather},
      {"scatter", &Rank::scatter},
      {"all_to_all", &Rank::all_to_all},
      {"reduce_scatter", &Rank::reduce_scatter},
      {"barrier", &Rank::barrier},
      {"differing", &Rank::differing},
      {"refused", &Rank::refused},
      {"ring_of_messages", &Rank::ring_of_messages},
      {"messages_from_any", &Rank::messages_from_any},
      {"differing_message", &Rank::differing_message},
      {"given_up", &Rank::given_up},
  };
  const Kind& kind = kKinds[drawn(std::size(kKinds))];
  ++number_;
  dtype_ = kDtypes[drawn(std::size(kDtypes))];
  constexpr Reduction kReductions[] = {Reduction::kSum, Reduction::kMax, Reduction::kMin};
  reduction_ = kReductions[drawn(std::size(kReductions))];
  size_ = drawn(40) == 0 ? kLargeSizes[drawn(std::size(kLargeSizes))] : kSizes[drawn(std::size(kSizes))];
  root_ = static_cast<int>(drawn(world_));
  if (of_my_own_() % 32 == 0) std::this_thread::sleep_for(std::chrono::microseconds(of_my_own_() % 3000));
  ++done_[kind.first];
  Pending one;
  one.title = std::string(kind.first) + " " + std::to_string(number_) + " of " + std::to_string(size_) + " " +
              name_of(dtype_) + " on rank " + std::to_string(me_) + " of " + std::to_string(world_);
  (this->*kind.second)(one);
  keep(std::move(one));
}

Announcement Rank::announcement(Collective collective, std::size_t count, int root) const {
  const bool reduces = collective == Collective::kAllReduce || collective == Collective::kReduce ||
                       collective == Collective::kReduceScatter;
  return {collective, dtype_, reduces ? reduction_ : Reduction::kNone, root, 0, static_cast<std::int64_t>(count), 1};
}

Block Rank::input(Pending& one, const Numbers& numbers) {
  one.inputs.push_back(std::make_shared<std::vector<unsigned char>>(encoded(dtype_, numbers)));
  return {one.inputs.back()->data(), static_cast<std::int64_t>(numbers.size())};
}

Block Rank::output(Pending& one, const Numbers& before, const Numbers& after) {
  std::vector<unsigned char> start = encoded(dtype_, before);
  const auto buffer = std::make_shared<std::vector<unsigned char>>(start);
  one.outputs.push_back({buffer, std::move(start), encoded(dtype_, after)});
  return {buffer->data(), static_cast<std::int64_t>(before.size())};
}

Numbers Rank::reduced(int to, std::size_t count) const {
  Numbers total = numbers_of(number_, 0, to, count);
  for (int rank = 1; rank < world_; ++rank) {
    reduce_into(reduction_, total.data(), numbers_of(number_, rank, to, count).data(), count);
  }
  return total;
}

void Rank::collective(Pending& one, comm::Task task) {
  comm::OperationFacts facts;
  facts.name = "collective";
  facts.sequence = number_;
  facts.timeout = timeout_;
  one.parts.push_back(start(*group_, facts, std::move(task)));
}

void Rank::message(Pending& one, comm::Task task, int peer, const int* source) {
  comm::OperationFacts facts;
  facts.name = "message";
  facts.is_transfer = true;
  facts.peer = peer;
  facts.timeout = timeout_;
  facts.source = source;
  one.parts.push_back(start(*group_, facts, std::move(task)));
}

void Rank::all_reduce(Pending& one) {
  const bool has_root = drawn(3) == 0;
  const Block data = output(one, mine(), !has_root || root_ == me_ ? reduced(0, size_) : mine());
  const Collective kind = has_root ? Collective::kReduce : Collective::kAllReduce;
  collective(one, comm::all_reduce(*group_, announcement(kind, size_, has_root ? root_ : -1), data));
}

void Rank::coalesced(Pending& one) {
  std::vector<comm::Part> parts;
  const int count = static_cast<int>(drawn(3)) + 1;
  for (int i = 0; i < count; ++i) {
    const std::size_t size = size_ / (i + 1);
    Announcement what = announcement(Collective::kAllReduce, size);
    what.parts = static_cast<std::uint16_t>(count);
    const Block data = output(one, numbers_of(number_, me_, i, size), reduced(i, size));
    parts.push_back({what, {}, {}, comm::all_reduce(*group_, what, data)});
  }
  collective(one, comm::coalesced(*group_, std::move(parts)));
}

void Rank::broadcast(Pending& one) {
  const Block data = output(one, mine(), numbers_of(number_, root_, 0, size_));
  Blocks outputs(world_);
  outputs[root_] = data;
  collective(one, comm::share(*group_, announcement(Collective::kBroadcast, size_, root_), data, outputs));
}

// Every rank has a different number of elements.
void Rank::all_gather(Pending& one) {
  Blocks outputs;
  for (int rank = 0; rank < world_; ++rank) {
    const std::size_t size = size_ + rank * 3;
    outputs.push_back(output(one, Numbers(size), numbers_of(number_, rank, 0, size)));
  }
  const Block own = input(one, numbers_of(number_, me_, 0, size_ + me_ * 3));
  collective(one, comm::share(*group_, announcement(Collective::kAllGather, own.count), own, outputs));
}

void Rank::gather(Pending& one) {
  Blocks outputs;
  for (int rank = 0; rank < world_ && root_ == me_; ++rank) {
    outputs.push_back(output(one, Numbers(size_), numbers_of(number_, rank, 0, size_)));
  }
  const Block own = input(one, mine());
  collective(one, comm::share(*group_, announcement(Collective::kGather, size_, root_), own, outputs));
}

void Rank::scatter(Pending& one) {
  Blocks inputs, outputs(world_);
  for (int rank = 0; rank < world_ && root_ == me_; ++rank) inputs.push_back(input(one, mine(rank)));
  outputs[root_] = output(one, Numbers(size_), numbers_of(number_, root_, me_, size_));
  collective(one, comm::exchange(*group_, announcement(Collective::kScatter, size_, root_), inputs, outputs));
}

void Rank::all_to_all(Pending& one) {
  const auto size = [this](int from, int to) { return size_ / world_ * ((from + to * 2) % 3) + from + to * 2; };
  Blocks inputs, outputs;
  for (int rank = 0; rank < world_; ++rank) {
    inputs.push_back(input(one, numbers_of(number_, me_, rank, size(me_, rank))));
    const std::size_t received = size(rank, me_);
    outputs.push_back(output(one, Numbers(received), numbers_of(number_, rank, me_, received)));
  }
  collective(one, comm::exchange(*group_, announcement(Collective::kAllToAll, size_), inputs, outputs));
}

void Rank::reduce_scatter(Pending& one) {
  size_ /= world_;
  Blocks inputs;
  for (int rank = 0; rank < world_; ++rank) inputs.push_back(input(one, mine(rank)));
  const Block result = output(one, Numbers(size_), reduced(me_, size_));
  collective(one,
             comm::reduce_scatter_blocks(*group_, announcement(Collective::kReduceScatter, size_), inputs, result));
}

void Rank::barrier(Pending& one) {
  collective(one, comm::share(*group_, announcement(Collective::kBarrier, 0), Block{}, Blocks{}));
}

// One rank has another size, dtype, root or operation: every rank is told so, and nothing is written.
void Rank::differing(Pending& one) {
  Announcement what = announcement(Collective::kReduce, size_, 0);
  const std::uint64_t how = drawn(4);
  if (root_ == me_ && how == 0) what.root = 1;
  if (root_ == me_ && how == 1) what.reduction = Reduction::kProduct;
  if (root_ == me_ && how == 2) what.collective = Collective::kAllReduce;
  if (root_ == me_ && how == 3) what.count = static_cast<std::int64_t>(++size_);
  const Block data = output(one, mine(), mine());
  one.refusal = "expected the same operation";
  collective(one, comm::all_reduce(*group_, what, data));
}

// Some ranks refuse an operation. The others learn of it as soon as these begin the next one.
void Rank::refused(Pending& one) {
  const std::uint64_t refusing = drawn((std::uint64_t{1} << world_) - 2) + 1;  // neither none nor all
  if ((refusing >> me_ & 1) != 0) {
    try {
      group_->skip();
    } catch (const comm::CommError& over) {
      require(is_of_the_end(over.what()), one.title + ": " + over.what());
    }
  } else {
    Pending first;
    first.title = one.title;
    first.refusal = "An earlier operation was refused there";
    const Block data = output(first, mine(), mine());
    collective(first, comm::all_reduce(*group_, announcement(Collective::kAllReduce, size_), data));
    keep(std::move(first));
  }
  ++number_;
  all_reduce(one);
}

// Two messages to the next rank, which receives them in reverse order of their tags.
void Rank::ring_of_messages(Pending& one) {
  const int to = (me_ + 1) % world_, from = (me_ + world_ - 1) % world_;
  const std::size_t bytes = size_ * element_bytes(dtype_);
  for (int tag = 0; tag < 2; ++tag) {
    message(one, group_->mailbox().send(to, tag, dtype_, input(one, mine(tag)).data, bytes), to);
  }
  const auto source = std::make_shared<int>(-1);
  for (int tag = 1; tag >= 0; --tag) {
    const Block place = output(one, Numbers(size_), numbers_of(number_, from, tag, size_));
    message(one, group_->mailbox().receive(from, tag, dtype_, place.data, bytes, source.get()), from, source.get());
  }
  one.check = [source, from, title = one.title] { require(*source == from, "another source: " + title); };
}

// Every rank sends to the root, which receives from whoever comes first.
void Rank::messages_from_any(Pending& one) {
  const std::size_t bytes = size_ * element_bytes(dtype_);
  const int tag = 2 + static_cast<int>(number_);
  if (me_ != root_) {
    message(one, group_->mailbox().send(root_, tag, dtype_, input(one, mine()).data, bytes), root_);
    return;
  }
  std::vector<std::pair<std::shared_ptr<int>, Buffer>> received;
  for (int i = 1; i < world_; ++i) {
    const auto source = std::make_shared<int>(-1);
    const auto buffer = std::make_shared<std::vector<unsigned char>>(bytes);
    message(one, group_->mailbox().receive(-1, tag, dtype_, buffer->data(), bytes, source.get()), -1, source.get());
    received.emplace_back(source, buffer);
  }
  for (const auto& [source, buffer] : received) one.inputs.push_back(buffer);
  one.check = [this, received, dtype = dtype_, number = number_, size = size_, title = one.title] {
    std::vector<bool> seen(world_);
    seen[me_] = true;
    for (const auto& [source, buffer] : received) {
      require(*source >= 0 && !seen[*source], "a source came twice: " + title);
      seen[*source] = true;
      require(*buffer == encoded(dtype, numbers_of(number, *source, 0, size)), "another message: " + title);
    }
  };
}

void Rank::differing_message(Pending& one) {
  const int to = (root_ + 1) % world_, tag = 2 + static_cast<int>(number_);
  const std::size_t bytes = size_ * element_bytes(dtype_);
  if (me_ == root_) {
    message(one, group_->mailbox().send(to, tag, dtype_, input(one, mine()).data, bytes), to);
  } else if (me_ == to) {
    const auto source = std::make_shared<int>(-1);
    one.check = [source] {};
    const Block place = output(one, Numbers(size_ + 1), Numbers(size_ + 1));
    const std::size_t more = bytes + element_bytes(dtype_);
    message(one, group_->mailbox().receive(root_, tag, dtype_, place.data, more, source.get()), root_, source.get());
  } else {
    return;
  }
  one.refusal = "send/recv failed";
}

// A receive that is given up while others read messages either has its message, or the next one gets it.
void Rank::given_up(Pending& one) {
  const int to = (root_ + 1) % world_, tag = 2 + static_cast<int>(number_);
  const std::size_t bytes = size_ * element_bytes(dtype_);
  if (me_ == root_) {
    message(one, group_->mailbox().send(to, tag, dtype_, input(one, mine()).data, bytes), to);
  } else if (me_ == to) {
    const auto source = std::make_shared<int>(-1);
    one.check = [source, from = root_, title = one.title] { require(*source == from, "another source: " + title); };
    const Block place = output(one, Numbers(size_), numbers_of(number_, root_, 0, size_));
    const auto receive = [&] {
      message(one, group_->mailbox().receive(root_, tag, dtype_, place.data, bytes, source.get()), root_, source.get());
    };
    receive();
    conclude_some(of_my_own_() % (kInFlight + 1));
    if (!group_->give_up(one.parts.back().operation, "given up")) return;
    one.parts.pop_back();
    receive();
  }
}

void Rank::keep(Pending one) {
  if (of_my_own_() % 2 == 0) comm::Progress::instance().attend(group_);
  pending_.push_back(std::move(one));
}

// Before the end every rank succeeds, whatever the others do once they have.
void Rank::pass_barrier() {
  Pending one;
  one.title = "a barrier at the end, on rank " + std::to_string(me_);
  barrier(one);
  keep(std::move(one));
  conclude_some(0);
}

void Rank::conclude_some(std::size_t most) {
  while (pending_.size() > most) {
    const auto index = static_cast<std::ptrdiff_t>(of_my_own_() % pending_.size());
    Pending one = std::move(pending_[index]);
    pending_.erase(pending_.begin() + index);
    conclude(one);
  }
}

void Rank::conclude(Pending& one) {
  std::string ended;
  for (const Told& part : one.parts) {
    const std::string error = finish(*group_, part);
    if (!one.refusal.empty() && has(error, one.refusal)) continue;
    if (error.empty() && one.refusal.empty()) continue;
    require(may_end_ && is_of_the_end(error), one.title + " ended with \"" + error + "\"");
    ended = error;
  }
  if (!ended.empty()) {
    is_over_ = true;
    return;
  }
  for (const Expected& expected : one.outputs) {
    require(*expected.buffer == (one.refusal.empty() ? expected.after : expected.before), "wrong data: " + one.title);
  }
  if (one.check && one.refusal.empty()) one.check();
}

// A rank that leaves after it was told of the end may be what another is told of.
bool Rank::is_of_the_end(const std::string& error) const {
  if (has(error, "leaving the group") || has(error, "left in the middle")) return true;
  if (plan_.end == End::kAborted) return has(error, "aborted by the fuzzer");
  if (plan_.end == End::kLate) return has(error, "Timed out waiting");
  return plan_.dies && has(error, "dead") && has(error, "rank " + std::to_string(plan_.victim) + " (");
}

void Rank::wait_for_failure() {
  const auto until = comm::Clock::now() + kPatience;
  while (!group_->has_failed()) {
    require(comm::Clock::now() < until, "nobody missed the late rank");
    std::this_thread::sleep_for(comm::milliseconds(1));
  }
}

}  // namespace fuzz
