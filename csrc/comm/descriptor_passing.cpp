#include "descriptor_passing.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "errors.h"

namespace anyaccel::comm {
namespace {

constexpr timeval kPatience{5, 0};  // for a peer that has connected but sends nothing
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

}  // namespace

Listener::Listener(const std::string& name) : socket_(make_socket()) {
  sockaddr_un address = {};
  const socklen_t length = address_of(name, address);
  if (bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(socket_.get(), SOMAXCONN) != 0) {
    throw_errno("shm failed: listening on a Unix socket");
  }
}

int Listener::serve(const Descriptor& handed, const std::string& secret, std::chrono::milliseconds patience) const {
  pollfd waiting{socket_.get(), POLLIN, 0};
  if (poll(&waiting, 1, static_cast<int>(patience.count())) <= 0) return -1;
  const Descriptor connection(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (connection.get() < 0 || !is_this_user(connection.get())) return -1;
  setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
  Greeting greeting = {};
  const ssize_t received = recv(connection.get(), &greeting, sizeof(greeting), 0);
  if (received != sizeof(greeting) || !knows(secret, greeting)) return -1;
  Message message;
  cmsghdr* control = CMSG_FIRSTHDR(&message.header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof(int));
  const int file = handed.get();
  std::memcpy(CMSG_DATA(control), &file, sizeof(file));
  return sendmsg(connection.get(), &message.header, MSG_NOSIGNAL) > 0 ? greeting.rank : -1;
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
  if (!is_greeted || recvmsg(socket_.get(), &message.header, MSG_CMSG_CLOEXEC) <= 0) {
    throw CommError(
        "shm init_process_group failed: the first rank of this host sent no shared memory: it ended, or runs as "
        "another user. Fix: run every rank as one user, and look for the error in that rank's log.");
  }
  const cmsghdr* control = CMSG_FIRSTHDR(&message.header);
  int file = -1;
  if (control != nullptr && control->cmsg_type == SCM_RIGHTS) std::memcpy(&file, CMSG_DATA(control), sizeof(file));
  return Descriptor(file);
}

}  // namespace anyaccel::comm
