// One rank of a group that does random operations: every rank draws the same ones from the seed.

#pragma once

#include <map>
#include <random>

#include "support.h"
#include "values.h"

namespace fuzz {

constexpr std::size_t kInFlight = 12;  // operations, at most

// How a group ends.
enum class End { kLeft, kKilled, kAborted, kLate };
constexpr const char* kEndNames[] = {"left", "killed", "aborted", "late"};

struct Plan {
  std::uint64_t seed = 0;
  int operations = 0;
  End end = End::kLeft;
  int victim = 0;     // the rank that is killed, aborts or comes late
  int at = 0;         // before which operation
  bool dies = false;  // killed by a signal, and otherwise by leaving
};

class Rank {
 public:
  Rank(comm::GroupPtr group, const Plan& plan);

  // Returns the number of operations, by name.
  std::map<std::string, int> run();

 private:
  using Buffer = std::shared_ptr<std::vector<unsigned char>>;

  // A buffer, and what it has to hold.
  struct Expected {
    Buffer buffer;
    std::vector<unsigned char> before, after;
  };
  struct Pending {
    std::string title;
    std::vector<Told> parts;
    std::vector<Expected> outputs;
    std::string refusal;  // the text of the error that it has to end with; empty if it has to succeed
    std::function<void()> check;
    std::vector<Buffer> inputs;  // kept until the end
  };

  void operate();
  void all_reduce(Pending& one);
  void coalesced(Pending& one);
  void broadcast(Pending& one);
  void all_gather(Pending& one);
  void gather(Pending& one);
  void scatter(Pending& one);
  void all_to_all(Pending& one);
  void reduce_scatter(Pending& one);
  void barrier(Pending& one);
  void differing(Pending& one);
  void refused(Pending& one);
  void send_and_wait(int from, int to);
  void ring_of_messages(Pending& one);
  void messages_from_any(Pending& one);
  void differing_message(Pending& one);
  void given_up(Pending& one);

  std::uint64_t drawn(std::uint64_t below) { return random_() % below; }
  Announcement announcement(Collective collective, std::size_t count, int root = -1) const;
  Block input(Pending& one, const Numbers& numbers);
  Block output(Pending& one, const Numbers& before, const Numbers& after);
  Numbers mine(int to = 0) const { return numbers_of(number_, me_, to, size_); }
  Numbers reduced(int to, std::size_t count) const;
  void collective(Pending& one, comm::Task task);
  void message(Pending& one, comm::Task task, int peer, const int* source = nullptr);
  void keep(Pending one);
  void pass_barrier();
  void conclude(Pending& one);
  void conclude_some(std::size_t most);
  bool is_of_the_end(const std::string& error) const;
  void wait_for_failure();

  const comm::GroupPtr group_;
  const Plan plan_;
  std::mt19937_64 random_;     // draws the same on every rank
  std::mt19937_64 of_my_own_;  // draws when to wait, and for what first
  const int me_, world_;
  std::vector<Pending> pending_;
  std::map<std::string, int> done_;
  bool may_end_ = false;  // from now on, operations may fail by the end of the group
  bool is_over_ = false;

  // of the operation that begins
  std::uint64_t number_ = 0;
  Dtype dtype_ = Dtype::kFloat32;
  Reduction reduction_ = Reduction::kSum;
  std::size_t size_ = 0;
  int root_ = 0;
  comm::milliseconds timeout_{kPatience};
};

}  // namespace fuzz
