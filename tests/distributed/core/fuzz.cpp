// Random operations of random groups on csrc/comm, without torch and Python, to run under sanitizers.
//
//   fuzz checks                     what has one right outcome: checks.cpp
//   fuzz processes 2-8 20000 1      ranks as processes that share memory: AddressSanitizer, UndefinedBehaviorSanitizer
//   fuzz threads 4 20000 1          ranks as threads on one mapping, so that ThreadSanitizer sees every access
//
// Arguments: ranks of a group (the least and the most), operations in all, seed. Every result is compared with the one
// that the seed determines. Ranks refuse operations, have other arguments than the rest, come late, are killed, abort
// and leave; signals interrupt them. A line for each number of ranks says what has been done.

#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "handshake.h"
#include "rank.h"

namespace {

using namespace fuzz;

using Counts = std::map<std::string, int>;

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
  bool has(const std::string& key) override { return std::filesystem::exists(file(key)); }

 private:
  std::filesystem::path file(std::string key) const {
    for (char& one : key) one = one == '/' ? '_' : one;
    return folder_ / key;
  }
  const std::filesystem::path folder_;
};

// A signal every two milliseconds, whose handler does nothing: system calls end early.
void interrupt_often() {
  struct sigaction action = {};
  action.sa_handler = [](int) {};
  sigaction(SIGALRM, &action, nullptr);
  const itimerval often{{0, 2000}, {0, 2000}};
  setitimer(ITIMER_REAL, &often, nullptr);
}

Counts run_rank(std::shared_ptr<comm::Segment> segment, int rank, const Plan& plan) {
  auto group = std::make_shared<comm::Group>(std::move(segment), rank, rank);
  group->wait_for_all(kPatience, nullptr);
  const Counts counts = Rank(group, plan).run();
  group->leave(
      "left at the end");  // the progress thread may hold the group when the process ends, which would look dead
  return counts;
}

Counts run_threads(int world, const Plan& plan) {
  const auto segment = std::make_shared<comm::Segment>(comm::Segment::create(world), world);
  std::vector<Counts> counts(world);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] { counts[rank] = run_rank(segment, rank, plan); });
  }
  for (std::thread& one : threads) one.join();
  return counts[plan.victim == 0 ? 1 : 0];
}

// Rank `1 - victim` or 0 writes what it has done into a pipe: it outlives the victim.
Counts run_processes(int world, const Plan& plan) {
  const auto folder = std::filesystem::temp_directory_path() / ("fuzz-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  std::vector<pid_t> children;
  for (int rank = 0; rank < world; ++rank) {
    const pid_t child = fork();
    require(child >= 0, "fork");
    if (child == 0) {
      FolderStore store(folder);
      comm::Meeting meeting = comm::meet(store, {rank, world, comm::host_identity()}, kPatience, nullptr);
      interrupt_often();
      const Counts counts = run_rank(std::move(meeting.segment), rank, plan);
      std::ofstream file(folder / ("done-" + std::to_string(rank)));
      for (const auto& [name, count] : counts) file << name << ' ' << count << '\n';
      file.close();
      std::_Exit(0);
    }
    children.push_back(child);
  }
  bool all = true;
  for (int rank = 0; rank < world; ++rank) {
    int status = 0;
    waitpid(children[rank], &status, 0);
    const bool dies = plan.end == End::kKilled && rank == plan.victim;
    all = all && (dies ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0);
  }
  Counts counts;
  std::ifstream file(folder / ("done-" + std::to_string(plan.victim == 0 ? 1 : 0)));
  std::string name;
  for (int count = 0; file >> name >> count;) counts[name] = count;
  file.close();
  std::filesystem::remove_all(folder);
  require(all, "a rank ended otherwise than planned: seed " + std::to_string(plan.seed));
  return counts;
}

int total(const Counts& counts) {
  int sum = 0;
  for (const auto& [name, count] : counts) sum += count;
  return sum;
}

void print(const std::string& mode, int world, const Counts& operations, const Counts& ends) {
  std::printf("%s, %d ranks: %d operations", mode.c_str(), world, total(operations));
  for (const auto& [name, count] : operations) std::printf(", %s %d", name.c_str(), count);
  std::printf("; %d groups", total(ends));
  for (const auto& [name, count] : ends) std::printf(", %s %d", name.c_str(), count);
  std::printf("\n");
}

void fuzz_groups(const std::string& mode, int least, int most, int operations, std::uint64_t seed) {
  std::map<int, Counts> done, ends;
  std::mt19937_64 random(seed);
  for (int left = operations; left > 0;) {
    const int world = least + static_cast<int>(random() % (most - least + 1));
    Plan plan;
    plan.seed = random();
    plan.operations = 1 + static_cast<int>(random() % 400);
    plan.end = static_cast<End>(random() % std::size(kEndNames));
    plan.victim = static_cast<int>(random() % world);
    plan.at = static_cast<int>(random() % plan.operations);
    plan.dies = mode == "processes";
    const Counts counts = mode == "threads" ? run_threads(world, plan) : run_processes(world, plan);
    for (const auto& [name, count] : counts) done[world][name] += count;
    ++ends[world][kEndNames[static_cast<int>(plan.end)]];
    left -= std::max(total(counts), 1);
  }
  for (const auto& [world, counts] : done) print(mode, world, counts, ends[world]);
  std::printf("%s, seed %llu: all results right\n", mode.c_str(), static_cast<unsigned long long>(seed));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "checks" && argc == 2) {
    check_all();
    std::printf("checks: all results right\n");
    return 0;
  }
  const bool is_known = mode == "processes" || mode == "threads";
  int least = 0;
  int most = 0;
  if (argc == 5 && std::sscanf(argv[2], "%d-%d", &least, &most) == 1) most = least;
  require(is_known && least >= 2 && least <= most && most <= 8,
          "expected: fuzz checks, or fuzz processes|threads RANKS[-RANKS] OPERATIONS SEED, with 2 to 8 ranks");
  if (mode == "threads") interrupt_often();
  fuzz_groups(mode, least, most, std::atoi(argv[3]), std::strtoull(argv[4], nullptr, 10));
  return 0;
}
