// shaped_link GBIT_PER_S MILLISECONDS LOSS NAMESPACE NAMESPACE: a cable between two network namespaces, with a rate, a
// delay in each direction and a share of lost packets, for kernels without netem. It makes the devices cable0 and
// cable1, and runs until it is killed.
//
// The kernel hands over TCP segments of up to 64 KiB, and takes them unsplit at the other end. With losses it splits
// them first, so that packets of the usual size are lost; that takes about 3 microseconds of a core for each.

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

// linux/virtio_net.h has it, but cannot be read as C++
struct PacketHeader {
  std::uint8_t flags, gso_type;
  std::uint16_t hdr_len, gso_size, csum_start, csum_offset;
};

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr nanoseconds kLongestQueue{50'000'000};  // what would wait longer for the cable is lost, as in a switch

struct Shape {
  double gbit_per_s;
  nanoseconds delay;
  double loss;
};

void require(bool is_true, const std::string& what) {
  if (is_true) return;
  std::perror(("shaped_link: " + what).c_str());
  std::exit(1);
}

int device_in(const char* network, const char* name, bool splits) {
  const int at = open(network, O_RDONLY | O_CLOEXEC);
  require(at >= 0 && setns(at, CLONE_NEWNET) == 0, std::string("entering ") + network);
  close(at);
  const int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  require(device >= 0, "opening /dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  require(ioctl(device, TUNSETIFF, &request) == 0, std::string("making ") + name);
  const unsigned offloads = splits ? TUN_F_CSUM : TUN_F_CSUM | TUN_F_TSO4;
  require(ioctl(device, TUNSETOFFLOAD, offloads) == 0, "setting offloads");
  return device;
}

void carry(int from, int to, const Shape& shape) {
  prctl(PR_SET_TIMERSLACK, 1000);
  struct Packet {
    Clock::time_point due;
    std::vector<char> bytes;
  };
  std::deque<Packet> under_way;
  std::mt19937_64 random(from);
  std::bernoulli_distribution is_lost(shape.loss);
  std::vector<char> buffer(sizeof(PacketHeader) + (1 << 16));
  Clock::time_point free_at{};  // when the cable's near end is free
  for (;;) {
    pollfd readable{from, POLLIN, 0};
    timespec patience{};
    if (!under_way.empty()) {
      patience.tv_nsec = std::clamp<long>(nanoseconds(under_way.front().due - Clock::now()).count(), 0, 999'999'999);
    }
    ppoll(&readable, 1, under_way.empty() ? nullptr : &patience, nullptr);
    for (int turn = 0; turn < 16; ++turn) {
      const ssize_t count = read(from, buffer.data(), buffer.size());
      if (count <= 0) break;
      const auto now = Clock::now();
      const auto start = std::max(now, free_at);
      if (is_lost(random) || start - now > kLongestQueue) continue;
      const double bits = 8.0 * (static_cast<double>(count) - sizeof(PacketHeader));
      free_at = start + nanoseconds(static_cast<long>(bits / shape.gbit_per_s));
      under_way.push_back({free_at + shape.delay, {buffer.data(), buffer.data() + count}});
    }
    while (!under_way.empty() && under_way.front().due <= Clock::now()) {
      const std::vector<char>& bytes = under_way.front().bytes;
      if (write(to, bytes.data(), bytes.size()) < 0) require(errno == EIO || errno == EAGAIN, "writing a packet");
      under_way.pop_front();
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "expected: shaped_link GBIT_PER_S MILLISECONDS LOSS NAMESPACE NAMESPACE\n");
    return 1;
  }
  const Shape shape{std::atof(argv[1]), nanoseconds(static_cast<long>(std::atof(argv[2]) * 1e6)), std::atof(argv[3])};
  const int first = device_in(argv[4], "cable0", shape.loss > 0);
  const int second = device_in(argv[5], "cable1", shape.loss > 0);
  std::thread back(carry, second, first, shape);
  carry(first, second, shape);
}
