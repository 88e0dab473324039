#include "handshake.h"

#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "clock.h"
#include "descriptor_passing.h"
#include "errors.h"

namespace anyaccel::comm {
namespace {

constexpr std::chrono::milliseconds kPollingStep{100};
constexpr std::size_t kLongestHost = 1024, kLongestReason = 1024;
constexpr char kSocketPrefix[] = "anyaccel-";
constexpr char kNoMemory[] = "none";
constexpr std::size_t kRandomText = 32;

std::string hexadecimal(std::uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(number));
  return text;
}

std::string key(const char* what, int rank) { return std::string("shm/") + what + "/" + std::to_string(rank); }

std::string random_text() { return hexadecimal(random_number()) + hexadecimal(random_number()); }

// What comes from the store may be anything: an older key, another program's, another version's.
[[noreturn]] void throw_unexpected(const std::string& name, const std::string& got, const char* expected) {
  throw CommError("shm init_process_group failed: got " + std::to_string(got.size()) + " bytes under '" + name +
                  "' in the store that are not " + expected +
                  ". Fix: run every rank with the same version of anyaccel, and give each job its own store.");
}

// Ranks of different versions would misread each other, also on different hosts.
std::string of_this_version() { return "shm " + std::to_string(kVersion) + " "; }

std::string host_of(KeyValues& store, int rank) {
  const std::string name = key("host", rank), value = store.get(name), version = of_this_version();
  if (value.rfind(version, 0) != 0 || value.size() == version.size() || value.size() > kLongestHost) {
    throw_unexpected(name, value, "the name of a host with this version of shm");
  }
  return value.substr(version.size());
}

struct Address {
  std::string name, secret;
};

// Empty if that rank could not create the memory.
std::optional<Address> address_of(KeyValues& store, int leader) {
  const std::string name = key("socket", leader), value = store.get(name);
  if (value == kNoMemory) return std::nullopt;
  const auto is_digit = [](unsigned char one) { return std::isxdigit(one) != 0; };
  const std::size_t prefix = std::size(kSocketPrefix) - 1, middle = prefix + kRandomText;
  if (value.size() != middle + 1 + kRandomText || value.compare(0, prefix, kSocketPrefix) != 0 ||
      value[middle] != ' ' || !std::all_of(value.begin() + prefix, value.begin() + middle, is_digit)) {
    throw_unexpected(name, value, "a socket's name and a secret");
  }
  return Address{value.substr(0, middle), value.substr(middle + 1)};
}

int leader_met_by(KeyValues& store, int rank, int world) {
  const std::string name = key("met", rank), value = store.get(name);
  int leader = -1;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), leader);
  if (error != std::errc() || end != value.data() + value.size() || leader < 0 || leader >= world) {
    throw_unexpected(name, value, "the number of a rank");
  }
  return leader;
}

struct Deadline {
  Clock::time_point until;
  const std::function<void()>& interrupt;

  void check(const std::string& missing) const {
    if (interrupt) interrupt();
    if (Clock::now() < until) return;
    throw CommError(
        "shm init_process_group timed out: got nothing from rank " + missing +
        "; expected every rank of this host to connect. Fix: check that it is running, or pass a longer timeout to "
        "init_process_group.");
  }
};

void hand_out(KeyValues& store, const Descriptor& memory, Listener& listener, const std::string& secret,
              const std::vector<int>& members, const Deadline& deadline) {
  std::set<int> missing(members.begin() + 1, members.end());
  while (!missing.empty()) {
    missing.erase(listener.serve(memory, secret, kPollingStep));
    if (missing.empty()) return;
    require_success(store, members);
    deadline.check(std::to_string(*missing.begin()));
  }
}

Descriptor fetch(KeyValues& store, Connection& connection, const std::string& secret, int rank,
                 const std::vector<int>& members, const Deadline& deadline) {
  for (;;) {
    try {
      Descriptor memory = connection.receive(secret, rank, kPollingStep);
      if (memory.get() >= 0) return memory;
    } catch (const CommError&) {
      require_success(store, members);  // the first rank ends the connection when another one has failed
      throw;
    }
    require_success(store, {members[0]});
    deadline.check(std::to_string(members[0]));
  }
}

// The memory, or the reason why it could not be created, such as a limit or a seccomp filter.
std::pair<Descriptor, std::string> memory_for(int world) {
  try {
    return {Segment::create(world), ""};
  } catch (const CommError& error) {
    return {Descriptor(), error.what()};
  }
}

// The ranks that connected to the same leader. A rank that could not reach its leader is alone.
std::vector<std::vector<int>> hosts_of(KeyValues& store, int world) {
  std::vector<std::vector<int>> hosts;
  std::map<int, std::size_t> known;
  for (int rank = 0; rank < world; ++rank) {
    const auto [entry, is_new] = known.emplace(leader_met_by(store, rank, world), hosts.size());
    if (is_new) hosts.emplace_back();
    hosts[entry->second].push_back(rank);
  }
  return hosts;
}

}  // namespace

std::string host_identity() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  utsname system = {};
  if (boot.empty() && uname(&system) == 0) boot = system.nodename;  // boot_id is masked; sharing memory is then tried
  struct stat network = {};
  const bool known = stat("/proc/self/ns/net", &network) == 0;
  return boot + "/" + (known ? std::to_string(network.st_ino) : "?") + "/" + std::to_string(geteuid());
}

void require_success(KeyValues& store, const std::vector<int>& ranks) {
  for (const int rank : ranks) {
    const std::string name = key("failed", rank);
    if (!store.has(name)) continue;
    throw CommError("shm init_process_group failed: rank " + std::to_string(rank) +
                    " of this host cannot share memory. Fix: correct what that rank said: " +
                    store.get(name).substr(0, kLongestReason));
  }
}

// A socket, or null and the problem: a rank that may have none is alone on its host.
template <typename Socket>
static std::unique_ptr<Socket> made(const std::string& name, std::string& problem) {
  try {
    return std::make_unique<Socket>(name);
  } catch (const CommError& error) {
    problem = error.what();
    return nullptr;
  }
}

Meeting meet(KeyValues& store, const Newcomer& self, std::chrono::milliseconds timeout,
             const std::function<void()>& interrupt) {
  store.set(key("host", self.rank), of_this_version() + self.host);
  Meeting meeting;
  std::vector<int> members;
  for (int rank = 0; rank < self.world; ++rank) {
    meeting.identities.push_back(host_of(store, rank));
    if (meeting.identities.back() == self.host) members.push_back(rank);
  }
  const Deadline deadline{end_of(timeout), interrupt};
  const int leader = members[0];
  Descriptor memory;
  std::unique_ptr<Listener> listener;
  std::unique_ptr<Connection> connection;
  std::string secret = random_text();
  if (self.rank == leader && members.size() > 1) {
    std::tie(memory, meeting.problem) = memory_for(static_cast<int>(members.size()));
    const std::string name = kSocketPrefix + random_text();
    if (memory.get() >= 0) listener = made<Listener>(name, meeting.problem);
    store.set(key("socket", leader), listener ? name + " " + secret : kNoMemory);
  } else if (self.rank != leader) {
    if (const auto address = address_of(store, leader)) {
      connection = made<Connection>(address->name, meeting.problem);
      secret = address->secret;
    }
  }
  const bool is_alone = !listener && !(connection && connection->is_open());
  store.set(key("met", self.rank), std::to_string(is_alone ? self.rank : leader));

  meeting.hosts = hosts_of(store, self.world);
  const auto own = std::find_if(meeting.hosts.begin(), meeting.hosts.end(), [&self](const std::vector<int>& ranks) {
    return std::find(ranks.begin(), ranks.end(), self.rank) != ranks.end();
  });
  const int world = static_cast<int>(own->size());
  if (world == 1) {
    meeting.segment = Segment::alone();
    return meeting;
  }
  try {
    if (listener) {
      if (own->size() != members.size()) memory = Segment::create(world);  // some could not connect
      hand_out(store, memory, *listener, secret, *own, deadline);
    } else {
      memory = fetch(store, *connection, secret, self.rank, *own, deadline);
    }
    meeting.segment = std::make_unique<Segment>(std::move(memory), world);
  } catch (const CommError& error) {
    store.set(key("failed", self.rank), error.what());
    throw;
  }
  return meeting;
}

}  // namespace anyaccel::comm
