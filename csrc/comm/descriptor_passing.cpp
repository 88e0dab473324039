#include "descriptor_passing.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "clock.h"
#include "errors.h"

namespace anyaccel::comm {
namespace {

constexpr std::size_t kSecretBytes = 32;

struct Greeting {
  char secret[kSecretBytes];
  std::int32_t rank;
};

Descriptor make_socket() {
  Descriptor made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (made.get() < 0) throw_errno("shm failed: making a Unix socket");
  return made;
}

socklen_t address_of(const std::string& name, sockaddr_un& address) {
  if (name.size() > sizeof(address.sun_path) - 1) {
    throw CommError("shm failed: got a socket's name of " + std::to_string(name.size()) + " bytes; expected at most " +
                    std::to_string(sizeof(address.sun_path) - 1) +
                    ". Fix: run every rank with the same version of anyaccel.");
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // a leading zero byte: no file
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

bool is_this_user(int connection) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

bool knows(const std::string& secret, const Greeting& greeting) {
  unsigned char difference = 0;  // every byte, as an early return would let a secret be guessed byte by byte
  for (std::size_t i = 0; i < kSecretBytes; ++i)
    difference |= static_cast<unsigned char>(secret[i] ^ greeting.secret[i]);
  return difference == 0;
}

struct Message {
  explicit Message() {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
  }
  char content = 'm';
  iovec part{&content, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
};

bool is_temporary(int error) { return error == EINTR || error == EAGAIN || error == EWOULDBLOCK; }

bool hand_over(int connection, const Descriptor& handed) {
  Message message;
  cmsghdr* control = CMSG_FIRSTHDR(&message.header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof(int));
  const int file = handed.get();
  std::memcpy(CMSG_DATA(control), &file, sizeof(file));
  ssize_t sent = -1;
  do {
    sent = sendmsg(connection, &message.header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent > 0;
}

}  // namespace

Listener::Listener(const std::string& name) : socket_(make_socket()) {
  sockaddr_un address = {};
  const socklen_t length = address_of(name, address);
  if (bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(socket_.get(), SOMAXCONN) != 0) {
    throw_errno("shm failed: listening on a Unix socket");
  }
}

void Listener::accept_one() {
  Descriptor connection(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (connection.get() >= 0 && is_this_user(connection.get())) silent_.push_back(std::move(connection));
}

int Listener::serve(const Descriptor& handed, const std::string& secret, std::chrono::milliseconds patience) {
  for (const auto until = end_of(patience);;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    std::vector<pollfd> waiting{{socket_.get(), POLLIN, 0}};
    for (const Descriptor& one : silent_) waiting.push_back({one.get(), POLLIN, 0});
    const int ready = left.count() < 0 ? 0 : poll(waiting.data(), waiting.size(), static_cast<int>(left.count()));
    if (ready == 0 || (ready < 0 && errno != EINTR)) return -1;
    for (std::size_t i = 1; ready > 0 && i < waiting.size(); ++i) {
      if (waiting[i].revents == 0) continue;
      const int rank = greeted(waiting[i].fd, handed, secret);
      if (rank >= 0) return rank;
    }
    if (ready > 0 && waiting[0].revents != 0) accept_one();
  }
}

// Returns the rank that a connection reports, and closes the connection unless its greeting has yet to come.
int Listener::greeted(int descriptor, const Descriptor& handed, const std::string& secret) {
  Greeting greeting = {};
  const ssize_t received = recv(descriptor, &greeting, sizeof(greeting), MSG_DONTWAIT);
  if (received < 0 && is_temporary(errno)) return -1;
  const bool is_served = received == sizeof(greeting) && knows(secret, greeting) && hand_over(descriptor, handed);
  std::erase_if(silent_, [descriptor](const Descriptor& one) { return one.get() == descriptor; });
  return is_served ? greeting.rank : -1;
}

Connection::Connection(const std::string& name) : socket_(make_socket()) {
  sockaddr_un address = {};
  const socklen_t length = address_of(name, address);
  is_open_ = connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), length) == 0;
}

Descriptor Connection::receive(const std::string& secret, int rank, std::chrono::milliseconds patience) {
  Greeting greeting = {};
  greeting.rank = rank;
  std::memcpy(greeting.secret, secret.data(), std::min(secret.size(), kSecretBytes));
  const bool is_greeted =
      has_greeted_ || (is_this_user(socket_.get()) &&
                       send(socket_.get(), &greeting, sizeof(greeting), MSG_NOSIGNAL) == sizeof(greeting));
  has_greeted_ = true;
  pollfd waiting{socket_.get(), POLLIN, 0};
  if (is_greeted && poll(&waiting, 1, static_cast<int>(patience.count())) <= 0) return Descriptor();
  Message message;
  const ssize_t received = is_greeted ? recvmsg(socket_.get(), &message.header, MSG_CMSG_CLOEXEC) : 0;
  if (received < 0 && is_temporary(errno)) return Descriptor();
  if (received <= 0) {
    throw CommError(
        "shm init_process_group failed: the first rank of this host sent no shared memory: it ended, or runs as "
        "another user. Fix: run every rank as one user, and look for the error in that rank's log.");
  }
  if ((message.header.msg_flags & MSG_CTRUNC) != 0) {
    throw CommError(
        "shm init_process_group failed: this process can open no more files, and got no shared memory. Fix: raise "
        "its limit of open files (ulimit -n).");
  }
  const cmsghdr* control = CMSG_FIRSTHDR(&message.header);
  int file = -1;
  if (control != nullptr && control->cmsg_type == SCM_RIGHTS) std::memcpy(&file, CMSG_DATA(control), sizeof(file));
  return Descriptor(file);
}

}  // namespace anyaccel::comm
