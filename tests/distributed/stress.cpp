// A standalone stress of csrc/comm, without torch and Python, to run under sanitizers.
//
//   stress processes 4 2000 1    ranks as processes that share memory: AddressSanitizer, UndefinedBehaviorSanitizer
//   stress threads 4 2000 1      ranks as threads on one mapping, so that ThreadSanitizer sees every access
//
// Arguments: ranks, operations, seed. Every result is compared with the one that the seed determines. Some operations
// are refused on one rank, and ranks come late to some; signals interrupt them, and `processes` kills one rank at the
// end.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "collectives.h"
#include "descriptor_passing.h"
#include "errors.h"
#include "handshake.h"
#include "progress.h"

namespace comm = anyaccel::comm;
using comm::Announcement;
using comm::Block;
using comm::Blocks;
using comm::Collective;
using comm::Dtype;
using comm::Reduction;

namespace {

constexpr std::chrono::seconds kPatience{60};

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "stress failed: %s\n", what.c_str());
  std::abort();
}

// A key-value store whose keys are files in a folder.
class FolderStore final : public comm::KeyValues {
 public:
  explicit FolderStore(std::filesystem::path folder) : folder_(std::move(folder)) {}
  void set(const std::string& key, const std::string& value) override {
    const auto part = file(key).string() + ".part";
    std::ofstream(part) << value;
    std::filesystem::rename(part, file(key));
  }
  std::string get(const std::string& key) override {
    while (!std::filesystem::exists(file(key))) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::stringstream text;
    text << std::ifstream(file(key)).rdbuf();
    return text.str();
  }

 private:
  std::filesystem::path file(std::string key) const {
    for (char& one : key) one = one == '/' ? '_' : one;
    return folder_ / key;
  }
  const std::filesystem::path folder_;
};

float value(std::uint64_t operation, int from, int to, std::size_t i) {
  return static_cast<float>((operation * 31 + from * 7 + to * 3 + i) % 1024);
}

Block block_of(std::vector<float>& values) {
  return {reinterpret_cast<unsigned char*>(values.data()), static_cast<std::int64_t>(values.size())};
}

class Rank {
 public:
  Rank(comm::GroupPtr group, std::uint64_t seed)
      : group_(std::move(group)),
        random_(seed),
        of_my_own_(seed * 1000 + group_->rank()),
        me_(group_->rank()),
        world_(group_->world()) {}

  void run(std::uint64_t operations) {
    for (std::uint64_t number = 0; number < operations; ++number) {
      const std::uint64_t kind = random_() % 8, size_class = random_() % 6;
      const std::size_t sizes[] = {0, 1, 33, 5000, 100'000, 700'001};
      const std::size_t size = sizes[size_class];
      const int root = static_cast<int>(random_() % world_);
      is_async_ = random_() % 2 == 0;
      if (of_my_own_() % 32 == 0) std::this_thread::sleep_for(std::chrono::microseconds(of_my_own_() % 3000));
      switch (kind) {
        case 0:
          sum(number, size, -1);
          break;
        case 1:
          sum(number, size, root);
          break;
        case 2:
          broadcast(number, size, root);
          break;
        case 3:
          exchange(number, size / world_);
          break;
        case 4:
          scatter_sums(number, size / world_);
          break;
        case 5:
          refused(number, size, root);
          break;
        default:
          messages(number, size);
          break;
      }
    }
  }

  // One rank dies: the others are told so, and by whose death.
  void lose(int victim) {
    if (me_ == victim) std::raise(SIGKILL);
    std::vector<float> mine(1000, 1);
    std::string text;
    try {
      const auto what = announcement(Collective::kAllReduce, 0, mine.size(), -1);
      const Told told = start_told("sum", comm::all_reduce(*group_, what, block_of(mine)));
      finish(told.operation);
      text = *told.text;
    } catch (const comm::CommError& error) {  // a peer was told before, and has ended the group
      text = error.what();
    }
    require(text.find("dead") != text.npos, "a death went unseen: " + text);
    require(text.find("rank " + std::to_string(victim)) != text.npos, "another rank was said to be dead: " + text);
  }

 private:
  // An operation that may fail, and the text of its error, complete once it is finished.
  struct Told {
    comm::OperationPtr operation;
    std::shared_ptr<std::string> text;
  };

  Announcement announcement(Collective collective, std::uint64_t number, std::size_t count, int root) const {
    const bool sums = collective == Collective::kAllReduce || collective == Collective::kReduce ||
                      collective == Collective::kReduceScatter;
    return {collective, Dtype::kFloat32, sums ? Reduction::kSum : Reduction::kNone,
            root,       number,          static_cast<std::int64_t>(count),
            1};
  }

  Told start_told(const char* name, comm::Task task) {
    auto text = std::make_shared<std::string>();
    auto finish = [text](std::exception_ptr error) {
      try {
        if (error) std::rethrow_exception(error);
      } catch (const comm::CommError& known) {
        *text = known.what();
      }
    };
    return {start(name, std::move(task), false, -1, std::move(finish)), text};
  }

  comm::OperationPtr start(const char* name, comm::Task task, bool is_transfer = false, int peer = -1,
                           std::function<void(std::exception_ptr)> finish = rethrow) {
    auto operation = std::make_shared<comm::Operation>();
    operation->name = name;
    operation->task = std::move(task);
    operation->is_transfer = is_transfer;
    operation->peer = peer;
    operation->timeout = kPatience;
    operation->finish = std::move(finish);
    group_->submit(operation);
    if (is_async_) comm::Progress::instance().attend(group_);
    return operation;
  }

  static void rethrow(std::exception_ptr error) {
    if (error) std::rethrow_exception(error);
  }

  void finish(const comm::OperationPtr& operation) {
    if (is_async_) std::this_thread::yield();
    require(group_->drive(*operation, comm::Clock::now() + kPatience, nullptr), operation->title() + " timed out");
  }

  std::vector<float> values(std::uint64_t number, int from, int to, std::size_t size) const {
    std::vector<float> made(size);
    for (std::size_t i = 0; i < size; ++i) made[i] = value(number, from, to, i);
    return made;
  }

  void check(const std::vector<float>& got, const std::vector<float>& expected, const char* what) const {
    require(got == expected, std::string(what) + " on rank " + std::to_string(me_));
  }

  std::vector<float> sums(std::uint64_t number, int to, std::size_t size) const {
    std::vector<float> total(size, 0);
    for (int rank = 0; rank < world_; ++rank) {
      for (std::size_t i = 0; i < size; ++i) total[i] += value(number, rank, to, i);
    }
    return total;
  }

  void sum(std::uint64_t number, std::size_t size, int root) {
    std::vector<float> mine = values(number, me_, 0, size);
    const auto what = announcement(root < 0 ? Collective::kAllReduce : Collective::kReduce, number, size, root);
    finish(start("sum", comm::all_reduce(*group_, what, block_of(mine))));
    check(mine, root < 0 || root == me_ ? sums(number, 0, size) : values(number, me_, 0, size), "sum");
  }

  void broadcast(std::uint64_t number, std::size_t size, int root) {
    std::vector<float> mine = values(number, me_, 0, size);
    Blocks outputs(world_);
    outputs[root] = block_of(mine);
    const auto what = announcement(Collective::kBroadcast, number, size, root);
    finish(start("broadcast", comm::share(*group_, what, block_of(mine), outputs)));
    check(mine, values(number, root, 0, size), "broadcast");
  }

  void exchange(std::uint64_t number, std::size_t size) {
    std::vector<std::vector<float>> sent, received(world_, std::vector<float>(size));
    Blocks inputs, outputs;
    for (int rank = 0; rank < world_; ++rank) sent.push_back(values(number, me_, rank, size));
    for (int rank = 0; rank < world_; ++rank) inputs.push_back(block_of(sent[rank]));
    for (int rank = 0; rank < world_; ++rank) outputs.push_back(block_of(received[rank]));
    const auto what = announcement(Collective::kAllToAll, number, size, -1);
    finish(start("exchange", comm::exchange(*group_, what, inputs, outputs)));
    for (int rank = 0; rank < world_; ++rank) check(received[rank], values(number, rank, me_, size), "exchange");
  }

  void scatter_sums(std::uint64_t number, std::size_t size) {
    std::vector<std::vector<float>> sent;
    std::vector<float> mine(size);
    Blocks inputs;
    for (int rank = 0; rank < world_; ++rank) sent.push_back(values(number, me_, rank, size));
    for (int rank = 0; rank < world_; ++rank) inputs.push_back(block_of(sent[rank]));
    const auto what = announcement(Collective::kReduceScatter, number, size, -1);
    finish(start("scatter_sums", comm::reduce_scatter_blocks(*group_, what, inputs, block_of(mine))));
    check(mine, sums(number, me_, size), "scatter_sums");
  }

  // An operation that is refused on one rank: the others wait until it starts the next one. Nothing is written.
  void refused(std::uint64_t number, std::size_t size, int victim) {
    std::vector<float> mine = values(number, me_, 0, size);
    Told told;
    if (me_ == victim) {
      group_->skip();
    } else {
      const auto what = announcement(Collective::kAllReduce, number, size, -1);
      told = start_told("refused", comm::all_reduce(*group_, what, block_of(mine)));
    }
    sum(number, size, -1);
    if (me_ == victim) return;
    finish(told.operation);
    require(told.text->find("An earlier operation was refused there") != std::string::npos,
            "a refusal of rank " + std::to_string(victim) + " was told as: " + *told.text);
    check(mine, values(number, me_, 0, size), "refused");
  }

  // Two messages around the ring, received in reverse order of their tags.
  void messages(std::uint64_t number, std::size_t size) {
    const int to = (me_ + 1) % world_, from = (me_ + world_ - 1) % world_;
    std::vector<float> sent[2], received[2];
    std::vector<comm::OperationPtr> under_way;
    int source = -1;
    for (int tag = 0; tag < 2; ++tag) {
      sent[tag] = values(number, me_, tag, size);
      under_way.push_back(
          start("send", group_->mailbox().send(to, tag, Dtype::kFloat32, sent[tag].data(), size * 4), true, to));
    }
    for (int tag = 1; tag >= 0; --tag) {
      received[tag].resize(size);
      under_way.push_back(start(
          "receive", group_->mailbox().receive(from, tag, Dtype::kFloat32, received[tag].data(), size * 4, &source),
          true, from));
    }
    for (const auto& one : under_way) finish(one);
    require(source == from, "the source of a message");
    for (int tag = 0; tag < 2; ++tag) check(received[tag], values(number, from, tag, size), "message");
  }

  const comm::GroupPtr group_;
  std::mt19937_64 random_;  // draws the same on every rank
  std::mt19937_64 of_my_own_;
  const int me_, world_;
  bool is_async_ = false;
};

// A signal every two milliseconds, whose handler does nothing: system calls end early.
void interrupt_often() {
  struct sigaction action = {};
  action.sa_handler = [](int) {};
  sigaction(SIGALRM, &action, nullptr);
  const itimerval often{{0, 2000}, {0, 2000}};
  setitimer(ITIMER_REAL, &often, nullptr);
}

void run_processes(int world, std::uint64_t operations, std::uint64_t seed) {
  const int victim = static_cast<int>(seed % world);
  const auto folder = std::filesystem::temp_directory_path() / ("stress-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  std::vector<pid_t> children;
  for (int rank = 0; rank < world; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      {
        FolderStore store(folder);
        comm::Meeting meeting = comm::meet(store, {rank, world, comm::host_identity()}, kPatience, nullptr);
        auto group = std::make_shared<comm::Group>(std::move(meeting.segment), rank, rank);
        group->wait_for_all(kPatience, nullptr);
        Rank one(group, seed);
        interrupt_often();
        one.run(operations);
        one.lose(victim);
      }
      std::_Exit(0);
    }
    children.push_back(child);
  }
  bool all = true;
  for (int rank = 0; rank < world; ++rank) {
    int status = 0;
    waitpid(children[rank], &status, 0);
    all = all && (rank == victim ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0);
  }
  std::filesystem::remove_all(folder);
  require(all, "a rank");
}

void run_threads(int world, std::uint64_t operations, std::uint64_t seed) {
  const auto segment = std::make_shared<comm::Segment>(comm::Segment::create(world), world);
  std::vector<std::thread> threads;
  interrupt_often();
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([=] {
      auto group = std::make_shared<comm::Group>(segment, rank, rank);
      group->wait_for_all(kPatience, nullptr);
      Rank(group, seed).run(operations);
    });
  }
  for (std::thread& one : threads) one.join();
}

// Memory that could be truncated under its readers, or that others can open, is rejected.
void refuse_forged_memory() {
  const comm::Layout layout(2);
  for (const bool is_sealed : {false, true}) {
    comm::Descriptor forged(memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    require(ftruncate(forged.get(), static_cast<off_t>(is_sealed ? layout.total / 2 : layout.total)) == 0, "ftruncate");
    if (is_sealed) fcntl(forged.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    fchmod(forged.get(), 0600);
    bool is_refused = false;
    try {
      const comm::Segment segment(std::move(forged), 2);
    } catch (const comm::CommError&) {
      is_refused = true;
    }
    require(is_refused, "forged memory was taken");
  }
}

// The memory states its own version.
void refuse_memory_of_another_version() {
  comm::Descriptor file = comm::Segment::create(2);
  comm::Identity identity = comm::Layout(2).identity();
  ++identity.version;
  require(pwrite(file.get(), &identity, sizeof(identity), 0) == sizeof(identity), "pwrite");
  bool is_refused = false;
  try {
    const comm::Segment segment(std::move(file), 2);
  } catch (const comm::CommError&) {
    is_refused = true;
  }
  require(is_refused, "memory of another version was taken");
}

// The only real rank of two; `forge` writes the other's data.
std::string error_beside(const std::function<void(comm::Segment&)>& forge,
                         const std::function<comm::Task(comm::Group&)>& call, bool is_transfer) {
  const auto segment = std::make_shared<comm::Segment>(comm::Segment::create(2), 2);
  forge(*segment);
  segment->state(1).process.store(1);
  auto group = std::make_shared<comm::Group>(segment, 0, 0);
  auto operation = std::make_shared<comm::Operation>();
  std::string text;
  operation->name = "forged";
  operation->is_transfer = is_transfer;
  operation->peer = is_transfer ? 1 : -1;
  operation->timeout = kPatience;
  operation->finish = [&text](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const comm::CommError& known) {
      text = known.what();
    }
  };
  operation->task = call(*group);
  group->submit(operation);
  require(group->drive(*operation, comm::Clock::now() + kPatience, nullptr), "an operation beside forged memory");
  return text;
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
  require(is_refused(message(std::uint64_t{1} << 40, Dtype::kFloat32)), "more letters than there are places were read");
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

// A process that does not know the secret, or belongs to another user, gets no descriptor; the next honest rank does.
void refuse_forged_handshake() {
  const std::string name = "anyaccel-stress-" + std::to_string(getpid()), secret(32, 's'), wrong(32, 'w');
  const comm::Listener listener(name);
  const comm::Descriptor memory = comm::Segment::create(2);
  const auto fetch = [&name](const std::string& with) {
    try {
      return comm::Connection(name).receive(with, 1, kPatience).get() >= 0;
    } catch (const comm::CommError&) {
      return false;
    }
  };
  for (const bool is_honest : {false, true}) {
    std::thread visitor([&] { require(fetch(is_honest ? secret : wrong) == is_honest, "a handshake"); });
    require(listener.serve(memory, secret, kPatience) == (is_honest ? 1 : -1), "whom a handshake serves");
    visitor.join();
  }
  if (geteuid() != 0) return;
  const pid_t stranger = fork();
  if (stranger == 0) std::_Exit(setuid(65534) != 0 || fetch(secret) ? 1 : 0);
  require(listener.serve(memory, secret, kPatience) == -1, "another user was served");
  int status = 0;
  require(waitpid(stranger, &status, 0) == stranger && status == 0, "another user got memory");
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

int main(int argc, char** argv) {
  require(argc == 5, "expected: stress processes|threads RANKS OPERATIONS SEED");
  const int world = std::atoi(argv[2]);
  const std::uint64_t operations = std::strtoull(argv[3], nullptr, 10), seed = std::strtoull(argv[4], nullptr, 10);
  refuse_forged_memory();
  refuse_memory_of_another_version();
  refuse_forged_peers();
  look_for_signals_rarely();
  refuse_forged_handshake();
  average_of_many();
  if (std::string(argv[1]) == "threads") {
    run_threads(world, operations, seed);
  } else {
    run_processes(world, operations, seed);
  }
  std::printf("%s: %d ranks, %llu operations each, seed %llu: all results right\n", argv[1], world,
              static_cast<unsigned long long>(operations), static_cast<unsigned long long>(seed));
  return 0;
}
