#include "mailbox.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "group.h"

namespace anyaccel::comm {
namespace {

constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelease = std::memory_order_release;
constexpr auto kRelaxed = std::memory_order_relaxed;

std::string described(std::size_t bytes, Dtype dtype) {
  return std::to_string(bytes / element_bytes(dtype)) + " " + name_of(dtype);
}

[[noreturn]] void throw_mismatch(const std::string& sender, std::size_t sent, Dtype sent_as,
                                 const std::string& receiver, std::size_t expected, Dtype expected_as) {
  throw MismatchError("send/recv failed: got " + sender + " sending " + described(sent, sent_as) + " and " + receiver +
                      " receiving " + described(expected, expected_as) +
                      "; expected the same on both. Fix: create the receiving tensor with the sender's dtype and "
                      "number of elements.");
}

// Letters or replies between a reader and a writer. The writer is at most a ring's length ahead.
std::uint64_t written(const std::atomic<std::uint64_t>& counter, std::uint64_t read) {
  const std::uint64_t sent = counter.load(kAcquire);
  if (sent - read > kLetters) throw_corrupt(std::to_string(sent - read) + " messages in flight");
  return sent;
}

void require_sane(Dtype dtype) {
  if (dtype > Dtype::kOpaque16) throw_corrupt("a message of an unknown dtype");
}

template <typename T>
T& place(T* ring, std::uint64_t number) {
  return ring[number % kLetters];
}

}  // namespace

Mailbox::Mailbox(Group& group, int world) : group_(group), peers_(static_cast<std::size_t>(world)) {}

void Mailbox::require_memory(int to) {
  Peer& peer = peers_[to];
  if (peer.has_memory) return;
  Segment& segment = group_.segment();
  segment.allocate(segment.layout.letters_of(group_.rank(), to), segment.layout.letters_bytes, "messages");
  peer.has_memory = true;
}

void Mailbox::put_letter(int to, int tag, Dtype dtype, const void* data, std::size_t bytes) {
  Segment& segment = group_.segment();
  Link& link = segment.link(group_.rank(), to);
  const std::uint64_t number = link.letters_sent.load(kRelaxed);
  Letter& letter = place(segment.at<Letters>(segment.layout.letters_of(group_.rank(), to))->letters, number);
  letter.bytes = bytes;
  letter.tag = tag;
  letter.dtype = dtype;
  if (bytes <= kInlineBytes && bytes > 0) std::memcpy(letter.content, data, bytes);
  link.letters_sent.store(number + 1, kRelease);
  group_.ring(to);
}

void Mailbox::collect_answers(int to) {
  Segment& segment = group_.segment();
  Link& link = segment.link(group_.rank(), to);
  std::uint64_t read = link.answers_read.load(kRelaxed);
  const std::uint64_t sent = written(link.answers_sent, read);
  if (read == sent) return;
  has_news_ = true;
  Answer* ring = segment.at<Letters>(segment.layout.letters_of(group_.rank(), to))->answers;
  Peer& peer = peers_[to];
  for (; read < sent; ++read) {
    const Answer answer = place(ring, read);
    require_sane(answer.dtype);
    const bool is_streamed = answer.verdict == Verdict::kAccepted && answer.bytes > kInlineBytes;
    peer.answers.emplace(answer.letter, Answered{answer, is_streamed ? peer.accepted_out++ : 0});
  }
  link.answers_read.store(read, kRelease);
  group_.ring(to);
}

Task Mailbox::send(int to, int tag, Dtype dtype, const void* data, std::size_t bytes) {
  require_memory(to);
  Peer& peer = peers_[to];
  Link& link = group_.segment().link(group_.rank(), to);
  const std::uint64_t number = peer.next_letter++;
  co_await until([&link, number] {
    return link.letters_sent.load(kRelaxed) == number && number - link.letters_read.load(kAcquire) < kLetters;
  });
  put_letter(to, tag, dtype, data, bytes);
  co_await until([this, to, &peer, number] {
    collect_answers(to);
    return peer.answers.contains(number);
  });
  const auto [answer, turn] = peer.answers.extract(number).mapped();
  if (answer.verdict == Verdict::kRefused) {
    throw_mismatch(group_.name_of_rank(group_.rank()), bytes, dtype, group_.name_of_rank(to), answer.bytes,
                   answer.dtype);
  }
  if (answer.bytes != bytes) throw_corrupt("a reply to a message of another size");
  if (bytes > kInlineBytes) {
    const std::uint64_t own_turn = turn;
    co_await until([&peer, own_turn] { return peer.streamed_out == own_turn; });
    co_await stream_out(to, static_cast<const unsigned char*>(data), bytes);
    ++peer.streamed_out;
  }
}

Task Mailbox::stream_out(int to, const unsigned char* data, std::size_t bytes) {
  Peer& peer = peers_[to];
  Segment& segment = group_.segment();
  if (!peer.has_stream_memory) {
    segment.allocate(segment.layout.stream(group_.rank(), to), 2 * kStreamBytes, "a stream");
    peer.has_stream_memory = true;
    group_.sweep_later();
  }
  Link& link = segment.link(group_.rank(), to);
  auto* stream = segment.at<unsigned char>(segment.layout.stream(group_.rank(), to));
  for (std::size_t start = 0; start < bytes; start += kStreamBytes) {
    const std::uint64_t piece = link.pieces_sent.load(kRelaxed);
    co_await until([&link, piece] { return piece - link.pieces_read.load(kAcquire) < 2; });
    std::memcpy(stream + piece % 2 * kStreamBytes, data + start, std::min(kStreamBytes, bytes - start));
    link.pieces_sent.store(piece + 1, kRelease);
    group_.ring(to);
  }
}

std::uint64_t Mailbox::activity() const {
  std::uint64_t sum = 0;
  const auto add = [&sum](const Link& link) {
    for (const auto* counter : {&link.letters_sent, &link.pieces_sent, &link.answers_read, &link.letters_read,
                                &link.pieces_read, &link.answers_sent}) {
      sum += counter->load(kAcquire);
    }
  };
  const Segment& segment = group_.segment();
  for (int rank = 0; rank < group_.world(); ++rank) {
    add(segment.link(group_.rank(), rank));
    if (rank != group_.rank()) add(segment.link(rank, group_.rank()));
  }
  return sum;
}

bool Mailbox::give_back() {
  Segment& segment = group_.segment();
  bool is_all = true;
  for (int to = 0; to < group_.world(); ++to) {
    Peer& peer = peers_[to];
    if (!peer.has_stream_memory) continue;
    const Link& link = segment.link(group_.rank(), to);
    const std::uint64_t sent = link.pieces_sent.load(kRelaxed);
    const bool is_idle = std::exchange(peer.swept_piece, sent) == sent && peer.accepted_out == peer.streamed_out;
    if (is_idle && link.pieces_read.load(kAcquire) == sent) {
      segment.release(segment.layout.stream(group_.rank(), to), 2 * kStreamBytes);
      peer.has_stream_memory = false;
    }
    is_all = is_all && !peer.has_stream_memory;
  }
  return is_all;
}

void Mailbox::collect_letters(int from) {
  Segment& segment = group_.segment();
  Link& link = segment.link(from, group_.rank());
  std::uint64_t read = link.letters_read.load(kRelaxed);
  const std::uint64_t sent = written(link.letters_sent, read);
  if (read == sent) return;
  has_news_ = true;
  const Letter* ring = segment.at<Letters>(segment.layout.letters_of(from, group_.rank()))->letters;
  for (; read < sent; ++read) {
    const Incoming one{read, from, place(ring, read)};
    require_sane(one.letter.dtype);
    const auto wanting =
        std::find_if(posted_.begin(), posted_.end(), [&one](const Posted* posted) { return posted->wants(one); });
    if (wanting != posted_.end()) {
      (*wanting)->take(one);
    } else {
      peers_[from].letters.push_back(one);
    }
  }
  link.letters_read.store(read, kRelease);
  group_.ring(from);
}

// Queues a receive, after matching it with the letters that have arrived.
void Mailbox::post(Posted& posted) {
  for (int rank = 0; rank < group_.world() && !posted.found; ++rank) {
    std::deque<Incoming>& letters = peers_[rank].letters;
    const auto found =
        std::find_if(letters.begin(), letters.end(), [&posted](const Incoming& one) { return posted.wants(one); });
    if (found == letters.end()) continue;
    posted.take(*found);
    letters.erase(found);
  }
  posted_.push_back(&posted);
}

void Mailbox::answer(int to, const Answer& answer) {
  Segment& segment = group_.segment();
  Link& link = segment.link(to, group_.rank());
  const std::uint64_t number = link.answers_sent.load(kRelaxed);
  place(segment.at<Letters>(segment.layout.letters_of(to, group_.rank()))->answers, number) = answer;
  link.answers_sent.store(number + 1, kRelease);
  group_.ring(to);
}

Task Mailbox::receive(int from, int tag, Dtype dtype, void* data, std::size_t bytes, int* source) {
  Posted posted{from, tag, source, std::nullopt};
  post(posted);
  struct Withdrawn {
    std::list<Posted*>& list;
    Posted* posted;
    ~Withdrawn() { list.remove(posted); }
  };
  {
    const Withdrawn at_the_end{posted_, &posted};
    co_await until([this, &posted] {
      if (posted.found) return true;
      for (int rank = 0; rank < group_.world() && !posted.found; ++rank) {
        if (rank != group_.rank() && (posted.from < 0 || posted.from == rank)) collect_letters(rank);
      }
      return posted.found.has_value();
    });
  }
  const Letter& letter = posted.found->letter;
  const int sender = posted.found->from;
  Link& link = group_.segment().link(sender, group_.rank());
  co_await until([&link] { return link.answers_sent.load(kRelaxed) - link.answers_read.load(kAcquire) < kLetters; });
  const bool fits = letter.bytes == bytes && letter.dtype == dtype;
  const std::uint64_t turn = peers_[sender].accepted_in;
  if (fits && bytes > kInlineBytes) ++peers_[sender].accepted_in;  // in the order of the answers
  answer(sender, {posted.found->number, bytes, fits ? Verdict::kAccepted : Verdict::kRefused, dtype});
  if (!fits) {
    throw_mismatch(group_.name_of_rank(sender), letter.bytes, letter.dtype, group_.name_of_rank(group_.rank()), bytes,
                   dtype);
  }
  if (bytes > kInlineBytes) {
    Peer& peer = peers_[sender];
    co_await until([&peer, turn] { return peer.streamed_in == turn; });
    co_await stream_in(sender, static_cast<unsigned char*>(data), bytes);
    ++peer.streamed_in;
  } else if (bytes > 0) {
    std::memcpy(data, letter.content, bytes);
  }
}

Task Mailbox::stream_in(int from, unsigned char* data, std::size_t bytes) {
  Segment& segment = group_.segment();
  Link& link = segment.link(from, group_.rank());
  const auto* stream = segment.at<unsigned char>(segment.layout.stream(from, group_.rank()));
  for (std::size_t start = 0; start < bytes; start += kStreamBytes) {
    const std::uint64_t piece = link.pieces_read.load(kRelaxed);
    co_await until([&link, piece] { return link.pieces_sent.load(kAcquire) > piece; });
    std::memcpy(data + start, stream + piece % 2 * kStreamBytes, std::min(kStreamBytes, bytes - start));
    link.pieces_read.store(piece + 1, kRelease);
    group_.ring(from);
  }
}

}  // namespace anyaccel::comm
