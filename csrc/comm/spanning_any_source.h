// Receives from any source in a group between hosts, on a rank that shares its host with others.
//
// A message comes by memory from this host and by gloo from the others, and a receive that gloo has cannot be taken
// back. So the receive waits in memory, where it can be, while this rank asks those of other hosts whether they have
// sent it something. What one has sent is then received from it by name. A rank has one question open to another for
// each tag. Every rank has a thread that answers: a rank that asks may be killed, and in gloo its unread question would
// stand in the way of all others.

#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "message_work.h"
#include "shm_backend.h"

namespace anyaccel::comm {

class AnySourceWork;

class AnySource : public std::enable_shared_from_this<AnySource> {
 public:
  // `here` are the ranks of this host, in the order of their numbers in `group`.
  AnySource(GroupPtr group, std::vector<int> here, int size, c10::intrusive_ptr<c10d::Backend> everyone,
            std::shared_ptr<OpenMessages> messages)
      : group_(std::move(group)),
        here_(std::move(here)),
        size_(size),
        everyone_(std::move(everyone)),
        messages_(std::move(messages)) {}

  // Starts the thread, which shut_down() ends.
  void start();
  void shut_down();

  WorkPtr receive(const at::Tensor& output, int tag, milliseconds timeout);

  // Called after each message between hosts was sent, and before each is received by name.
  void count_sent(int to, int tag);
  void count_received(int from, int tag);

 private:
  friend class AnySourceWork;
  using WaitingPtr = c10::intrusive_ptr<AnySourceWork>;
  using Route = std::pair<int, int>;  // a rank and a tag
  enum class Kind : int64_t { kQuestion, kAnswer };
  struct Note {
    Kind kind;
    int64_t tag;
    int64_t count;
  };

  void serve();
  void hear(int from, const Note& note);
  void match(int tag);
  void ask(int rank, int tag);
  void answer(int rank, int tag);
  void send_note(int to, const Note& note);
  bool withdraw(const WaitingPtr& one);
  void give_up(const WaitingPtr& one, const std::string& text);
  void local_ended(const WaitingPtr& one, const std::exception_ptr& error);
  OperationPtr local_of(const AnySourceWork& one);
  void end(const std::string& text);

  const GroupPtr group_;
  const std::vector<int> here_;
  const int size_;
  const c10::intrusive_ptr<c10d::Backend> everyone_;
  const std::shared_ptr<OpenMessages> messages_;

  std::mutex mutex_;  // guards the members below; taken before the group's
  std::map<Route, int64_t> sent_, received_;
  std::map<Route, int64_t> known_;                       // of what others have sent
  std::map<Route, int64_t> questions_;                   // of others, to be answered once more than this has been sent
  std::set<Route> asked_;                                // questions of this rank without an answer
  std::map<std::tuple<Kind, int, int>, WorkPtr> notes_;  // the last of each; before the next, it has arrived
  std::list<WaitingPtr> waiting_;                        // in the order of issue; who takes one out completes it
  WorkPtr listening_;
  std::string over_;  // why nothing is received any more; empty while it is
};

}  // namespace anyaccel::comm
