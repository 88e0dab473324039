#include "rank.h"

#include <algorithm>
#include <csignal>
#include <numeric>
#include <thread>

namespace fuzz {
namespace {

constexpr std::size_t kSizes[] = {0, 1, 7, 33, 500, 4096, 5000, 20'000};
constexpr std::size_t kLargeSizes[] = {100'000, 300'001};
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

// Some ranks or all refuse an operation, once or twice. The others are told before those begin the next one: one that
// refused waits for a message from one that was told.
void Rank::refused(Pending& one) {
  const std::uint64_t refusing = drawn((std::uint64_t{1} << world_) - 1) + 1;  // not none
  const std::uint64_t times = 1 + drawn(2);
  const int teller = std::countr_zero(refusing), told = std::countr_one(refusing);  // none is told if told == world_
  for (std::uint64_t i = 0; i < times; ++i, ++number_) {
    const std::string reason = "refusal " + std::to_string(number_) + " by the fuzzer";
    if ((refusing >> me_ & 1) != 0) {
      comm::refuse(*group_, reason);
      continue;
    }
    Pending first;
    first.title = one.title;
    first.refusal = reason;
    const Block data = output(first, mine(), mine());
    collective(first, comm::all_reduce(*group_, announcement(Collective::kAllReduce, size_), data));
    if (me_ == told) conclude(first);
    if (me_ != told) keep(std::move(first));
  }
  const bool may_be_late = plan_.end == End::kLate && plan_.victim == told && may_end_;
  if (told < world_ && !may_be_late) send_and_wait(told, teller);
  all_reduce(one);
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
