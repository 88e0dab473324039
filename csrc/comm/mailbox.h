// Messages between two ranks of a group, matched by tag in any order.
//
// A sender puts a letter into its link to the receiver: tag, dtype and size, and the content if it is small. The
// receiver takes out every letter as it arrives, and replies when a matching receive is posted: accepted, or refused
// with what it expected. A send completes only then, so both sides see a mismatch. Large contents follow in pieces, in
// the order of the replies.

#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "layout.h"
#include "task.h"

namespace anyaccel::comm {

class Group;

struct Incoming {
  std::uint64_t number;
  int from;
  Letter letter;
};

// A posted receive. A letter goes to the first receive that matches it.
struct Posted {
  int from;  // -1: any rank
  int tag;
  int* source;
  std::optional<Incoming> found;

  bool wants(const Incoming& one) const { return !found && (from < 0 || from == one.from) && tag == one.letter.tag; }
  // From now on, the receive cannot be given up: the letter would be lost, and its sender would wait forever.
  void take(const Incoming& one) {
    found = one;
    *source = one.from;
  }
};

// A reply, and the position of a large content among those that its sender streams, which is the order of the replies.
struct Answered {
  Answer answer;
  std::uint64_t turn;
};

class Mailbox {
 public:
  Mailbox(Group& group, int world);

  // `from` is -1 for any rank; `*source` is set to the rank that sent the message as soon as it is known.
  Task send(int to, int tag, Dtype dtype, const void* data, std::size_t bytes);
  Task receive(int from, int tag, Dtype dtype, void* data, std::size_t bytes, int* source);

  // Returns whether letters or answers have been taken in since the last call. The operation that they are for may be
  // another than the one that looked for them, and one that was looked at before.
  bool has_news() { return std::exchange(has_news_, false); }

  // A number that changes whenever a peer, or this rank, moves on in a link between them. A send or a receive that
  // waits cannot go on while it stays the same.
  std::uint64_t activity() const;

  // Like Group::give_back.
  bool give_back();

 private:
  // This rank's state of its links to and from a peer.
  struct Peer {
    bool has_memory = false;
    bool has_stream_memory = false;
    std::uint64_t next_letter = 0;              // letters are numbered in the order of issue
    std::map<std::uint64_t, Answered> answers;  // received and not yet processed, by letter
    std::uint64_t accepted_out = 0;
    std::uint64_t streamed_out = 0;
    std::uint64_t swept_piece = 0;
    std::uint64_t accepted_in = 0;
    std::uint64_t streamed_in = 0;
    std::deque<Incoming> letters;  // received before a matching receive was posted
  };

  void require_memory(int to);
  void put_letter(int to, int tag, Dtype dtype, const void* data, std::size_t bytes);
  void collect_answers(int to);
  void collect_letters(int from);
  void post(Posted& posted);
  void answer(int to, const Answer& answer);
  Task stream_out(int to, const unsigned char* data, std::size_t bytes);
  Task stream_in(int from, unsigned char* data, std::size_t bytes);

  Group& group_;
  std::vector<Peer> peers_;
  std::list<Posted*> posted_;  // in the order of issue
  bool has_news_ = false;
};

}  // namespace anyaccel::comm
