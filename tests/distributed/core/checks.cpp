// What the core promises, each shown in one process: no torch, no Python, no time that decides.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <thread>

#include "descriptor_passing.h"
#include "handshake.h"
#include "support.h"

namespace {

using namespace fuzz;

void require_refusal(comm::Descriptor file, const char* otherwise) {
  bool is_refused = false;
  try {
    const comm::Segment segment(std::move(file), 2);
  } catch (const comm::CommError&) {
    is_refused = true;
  }
  require(is_refused, otherwise);
}

// Memory that could be truncated under its readers, or that others can open, is rejected.
void refuse_forged_memory() {
  const comm::Layout layout(2);
  for (const bool is_sealed : {false, true}) {
    comm::Descriptor forged(memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    require(ftruncate(forged.get(), static_cast<off_t>(is_sealed ? layout.total / 2 : layout.total)) == 0, "ftruncate");
    if (is_sealed) fcntl(forged.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    fchmod(forged.get(), 0600);
    require_refusal(std::move(forged), "forged memory was taken");
  }
}

// The memory states its own version.
void refuse_memory_of_another_version() {
  comm::Descriptor file = comm::Segment::create(2);
  comm::Identity identity = comm::Layout(2).identity();
  ++identity.version;
  require(pwrite(file.get(), &identity, sizeof(identity), 0) == sizeof(identity), "pwrite");
  require_refusal(std::move(file), "memory of another version was taken");
}

// The only real rank of two; `forge` writes the other's data.
std::string error_beside(const std::function<void(comm::Segment&)>& forge,
                         const std::function<comm::Task(comm::Group&)>& call, bool is_transfer) {
  const auto segment = std::make_shared<comm::Segment>(comm::Segment::create(2), 2);
  forge(*segment);
  segment->state(1).process.store(1);
  auto group = std::make_shared<comm::Group>(segment, 0, 0);
  comm::OperationFacts facts;
  facts.name = "forged";
  facts.is_transfer = is_transfer;
  facts.peer = is_transfer ? 1 : -1;
  facts.timeout = kPatience;
  return finish(*group, start(*group, facts, call(*group)));
}

// Data from a peer is checked before it is used as an index, size or name.
void refuse_forged_peers() {
  std::vector<float> data(8), parts(16);
  const Block block = block_of(data);
  const Announcement gathers{Collective::kAllGather, Dtype::kFloat32, Reduction::kNone, -1, 1, 8, 1};
  const auto beside = [&](const Announcement& theirs, std::int64_t sends) {
    return error_beside(
        [&](comm::Segment& segment) {
          segment.state(1).announcements[1] = theirs;
          segment.state(1).posted.store(1);
          auto* table = segment.at<std::int64_t>(segment.layout.table(1, 1));
          table[0] = table[1] = sends;
          table[2] = table[3] = 8;
        },
        [&](comm::Group& group) {
          const Blocks outputs{block, {block.data, 8}};
          return comm::share(group, gathers, block, outputs);
        },
        false);
  };
  require(beside(gathers, 8).empty(), "an honest peer was refused");
  const auto is_refused = [](const std::string& text) { return text.find("in the shared memory") != text.npos; };
  const auto forged = [&](auto change) {
    Announcement theirs = gathers;
    change(theirs);
    require(is_refused(beside(theirs, 8)), "a forged announcement was used");
  };
  forged([](Announcement& one) { one.collective = static_cast<Collective>(200); });
  forged([](Announcement& one) { one.dtype = static_cast<Dtype>(200); });
  forged([](Announcement& one) { one.reduction = static_cast<Reduction>(200); });
  forged([](Announcement& one) { one.root = 7; });
  forged([](Announcement& one) { one.count = -1; });
  forged([](Announcement& one) { one.count = std::int64_t{1} << 60; });
  forged([](Announcement& one) { one.count = 1000; });  // differs from its table
  forged([](Announcement& one) { ++one.sequence; });
  require(is_refused(beside(gathers, -8)), "a forged table was used");
  const auto message = [&](std::uint64_t sent, Dtype dtype) {
    return error_beside(
        [&](comm::Segment& segment) {
          segment.link(1, 0).letters_sent.store(sent);
          segment.allocate(segment.layout.letters_of(1, 0), segment.layout.letters_bytes, "messages");
          auto& letter = segment.at<comm::Letters>(segment.layout.letters_of(1, 0))->letters[0];
          letter.bytes = 32;
          letter.dtype = dtype;
        },
        [&](comm::Group& group) {
          static int source = -1;
          return group.mailbox().receive(1, 0, Dtype::kFloat32, data.data(), 32, &source);
        },
        true);
  };
  require(message(1, Dtype::kFloat32).empty(), "an honest message was refused");
  require(is_refused(message(1, static_cast<Dtype>(200))), "a letter of an unknown dtype was taken");
  require(is_refused(message(std::uint64_t{1} << 40, Dtype::kFloat32)), "more letters than places were read");
}

// A rank that looks for trouble before it sees that its operation is complete: its peer completed it, and has ended
// the group since.
void complete_what_a_peer_has_completed() {
  using End = std::function<void(Pair&)>;
  const End ends[] = {
      [](Pair& pair) {
        pair.second->fail("ended by the second rank");
        pair.first->supervise();
      },
      [](Pair& pair) {
        pair.second->leave("the second rank left");
        pair.first->supervise();
      },
      [](Pair& pair) { pair.first->leave("the first rank leaves"); },
  };
  for (const End& end : ends) {
    Pair pair;
    const Told waiting = start_barrier(*pair.first), next = start_barrier(*pair.first);
    const Told complete = start_barrier(*pair.second);
    require(complete.operation->is_finished && complete.text->empty(), "the last rank completes a barrier at once");
    require(!waiting.operation->is_finished, "a rank completes its barrier only when it looks");
    end(pair);
    require(waiting.operation->is_finished && waiting.text->empty(),
            "a barrier that a peer has completed failed: " + *waiting.text);
    if (!next.operation->is_finished) pair.first->leave("the test is over");
    require(!next.text->empty(), "a barrier without the other rank was completed");
  }
}

comm::OperationFacts facts_of_message(int peer) {
  comm::OperationFacts facts;
  facts.name = "message";
  facts.is_transfer = true;
  facts.timeout = kPatience;
  facts.peer = peer;
  return facts;
}

// A number that the other rank of a pair sends.
struct Arrival {
  float value = 0;
  int source = -1;
};

Told start_sending(comm::Group& group, int tag, const float& value) {
  const int to = 1 - group.rank();
  return start(group, facts_of_message(to), group.mailbox().send(to, tag, Dtype::kFloat32, &value, sizeof(value)));
}

Told start_receiving(comm::Group& group, int tag, Arrival& to) {
  comm::OperationFacts facts = facts_of_message(1 - group.rank());
  facts.source = &to.source;
  return start(group, facts,
               group.mailbox().receive(facts.peer, tag, Dtype::kFloat32, &to.value, sizeof(to.value), &to.source));
}

// A receive that is given up when another has taken in its message has come too far: it keeps the message.
void keep_what_another_receive_has_taken_in() {
  Pair pair;
  const float sent = 3;
  Arrival one, other;
  const Told receiving = start_receiving(*pair.first, 1, one);
  const Told sending = start_sending(*pair.second, 1, sent);
  const Told next = start_receiving(*pair.first, 2, other);  // takes in what has come
  require(!pair.first->give_up(receiving.operation, "too late"), "a receive that has its message was given up");
  require(finish(*pair.first, receiving).empty() && one.value == 3, "a message was lost");
  require(finish(*pair.second, sending).empty(), "its sender waits");
  require(pair.first->give_up(next.operation, "too late") && other.source < 0, "a receive without one can be given up");
}

// A thread that sees nothing move goes to sleep. So one look at all operations has to include those that were looked at
// before another took in what they wait for.
void advance_what_a_later_operation_takes_in() {
  Pair pair;
  const float sent = 3;
  Arrival one, other;
  Told sending;
  bool is_open = false;
  const auto send_meanwhile = [&]() -> comm::Task {
    co_await comm::until([&] {
      if (is_open && !sending.operation) sending = start_sending(*pair.second, 1, sent);
      return false;
    });
  };
  const Told receiving = start_receiving(*pair.first, 1, one);
  start(*pair.first, facts_of_message(1), send_meanwhile());
  start_receiving(*pair.first, 2, other);
  is_open = true;
  require(pair.first->progress() && one.value == 3, "a message was taken in, and its receive did not move");

  Told answering;
  is_open = false;
  Arrival first;
  const auto answer_meanwhile = [&]() -> comm::Task {
    co_await comm::until([&] {
      if (is_open && !answering.operation) answering = start_receiving(*pair.second, 3, first);
      return false;
    });
  };
  const Told asking = start_sending(*pair.first, 3, sent);
  start(*pair.first, facts_of_message(1), answer_meanwhile());
  start_sending(*pair.first, 4, sent);
  is_open = true;
  require(pair.first->progress() && asking.operation->is_finished, "an answer was taken in, and its send did not move");
}

// The same for a message: its receiver has it.
void complete_what_was_received() {
  Pair pair;
  const float sent = 3;
  Arrival arrival;
  const Told sending = start_sending(*pair.first, 0, sent), receiving = start_receiving(*pair.second, 0, arrival);
  require(receiving.operation->is_finished && arrival.value == 3, "a message that waits is received at once");
  pair.second->fail("ended by the receiver");
  pair.first->supervise();
  require(sending.operation->is_finished && sending.text->empty(),
          "a message that was received failed: " + *sending.text);
}

// Checking for signals takes Python's lock, which a busy thread may hold for a long time: a waiting rank does so
// rarely, however often it is woken.
void look_for_signals_rarely() {
  const auto segment = std::make_shared<comm::Segment>(comm::Segment::create(2), 2);
  auto group = std::make_shared<comm::Group>(segment, 0, 0);
  auto peer = std::make_shared<comm::Group>(segment, 1, 1);
  std::atomic<bool> is_over = false;
  std::thread ringing([&] {
    while (!is_over) {
      group->ring(0);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  auto operation = std::make_shared<comm::Operation>();
  std::vector<float> data(8);
  operation->name = "waiting";
  operation->timeout = kPatience;
  const Announcement sums{Collective::kAllReduce, Dtype::kFloat32, Reduction::kSum, -1, 1, 8, 1};
  operation->task = comm::all_reduce(*group, sums, block_of(data));
  group->submit(operation);
  int looks = 0;
  const auto began = comm::Clock::now();
  require(!group->drive(*operation, began + std::chrono::milliseconds(300), [&looks] { ++looks; }), "it is waiting");
  const auto took = comm::Clock::now() - began;
  is_over = true;
  ringing.join();
  require(looks <= took / std::chrono::milliseconds(50) + 1,
          "signals were looked for " + std::to_string(looks) + " times");
}

// What the address of a socket cannot hold is refused before it is copied there.
void refuse_long_names() {
  const std::string name(200, 'n');
  const auto refuses = [](const auto& make) {
    try {
      make();
    } catch (const comm::CommError& error) {
      return std::string(error.what()).find("a socket's name of 200 bytes") != std::string::npos;
    }
    return false;
  };
  require(refuses([&] { comm::Listener listener(name); }), "a listener with a long name");
  require(refuses([&] { comm::Connection connection(name); }), "a connection to a long name");
}

// A process that does not know the secret, or belongs to another user, gets no descriptor; the next honest rank does.
void refuse_forged_handshake() {
  const std::string name = "anyaccel-stress-" + std::to_string(getpid()), secret(32, 's'), wrong(32, 'w');
  comm::Listener listener(name);
  const comm::Descriptor memory = comm::Segment::create(2);
  const auto fetch = [&name](const std::string& with) {
    try {
      return comm::Connection(name).receive(with, 1, kPatience).get() >= 0;
    } catch (const comm::CommError&) {
      return false;
    }
  };
  const auto serve_until = [&](const std::function<bool()>& is_over) {
    int rank = -1;
    while (!is_over()) rank = std::max(rank, listener.serve(memory, secret, std::chrono::milliseconds(20)));
    return rank;
  };
  for (const bool is_honest : {false, true}) {
    std::atomic<bool> is_over = false;
    std::thread visitor([&] {
      require(fetch(is_honest ? secret : wrong) == is_honest, "a handshake");
      is_over = true;
    });
    require(serve_until([&] { return is_over.load(); }) == (is_honest ? 1 : -1), "whom a handshake serves");
    visitor.join();
  }
  if (geteuid() != 0) return;
  const pid_t stranger = fork();
  if (stranger == 0) std::_Exit(setuid(65534) != 0 || fetch(secret) ? 1 : 0);
  int status = 0;
  const auto has_ended = [&] { return waitpid(stranger, &status, WNOHANG) == stranger; };
  require(serve_until(has_ended) == -1, "another user was served");
  require(status == 0, "another user got memory");
}

// More ranks than an element can hold, and sums that no element can hold.
void average_of_many() {
  std::vector<std::int8_t> ones(100, 1), result(100);
  const std::vector<const void*> inputs(256, ones.data());
  comm::reduce(Dtype::kInt8, Reduction::kAverage, result.data(), inputs.data(), 256, result.size(), nullptr);
  require(result == ones, "an average of 256 int8");
  const std::vector<std::int64_t> large(100, -9'000'000'000'000'000'000);
  std::vector<std::int64_t> found(100);
  const std::vector<const void*> both(2, large.data());
  comm::reduce(Dtype::kInt64, Reduction::kAverage, found.data(), both.data(), 2, found.size(), nullptr);
  require(found == large, "an average of int64 whose sum is none");
}

}  // namespace

void fuzz::check_all() {
  refuse_forged_memory();
  refuse_memory_of_another_version();
  refuse_forged_peers();
  complete_what_a_peer_has_completed();
  complete_what_was_received();
  keep_what_another_receive_has_taken_in();
  advance_what_a_later_operation_takes_in();
  look_for_signals_rarely();
  refuse_long_names();
  refuse_forged_handshake();
  average_of_many();
  check_refusals();
  check_between_hosts();
}
