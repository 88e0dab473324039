// Messages between two ranks of a group: who waits for which, whatever the order of tags.
//
// A sender puts a letter into its link to the receiver: tag, type and size, and the content where it is small. The
// receiver takes every letter out as it comes, and answers when a receive for it is posted: accepted, or refused with
// what it expected. Only then is a send complete, so that both sides hear of a mismatch. Large contents follow in
// pieces, in the order of the answers.

#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
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

// A receive that has been posted: a letter belongs to the first of those that want it.
struct Posted {
  int from;  // -1: any rank
  int tag;
  std::optional<Incoming> found;

  bool wants(const Incoming& one) const { return !found && (from < 0 || from == one.from) && tag == one.letter.tag; }
};

// An answer, and the place of a large content among those that its sender streams: theirs is the order of the answers.
struct Answered {
  Answer answer;
  std::uint64_t turn;
};

class Mailbox {
 public:
  Mailbox(Group& group, int world);

  // `from` is -1 for any rank, and then `*source` tells whose message it was.
  Task send(int to, int tag, Dtype dtype, const void* data, std::size_t bytes);
  Task receive(int from, int tag, Dtype dtype, void* data, std::size_t bytes, int* source);

  // As of a group.
  bool give_back();

 private:
  // What this rank keeps of its link to, and from, a peer.
  struct Peer {
    bool has_memory = false;
    bool has_stream_memory = false;
    std::uint64_t next_letter = 0;              // numbers are given in the order of issue
    std::map<std::uint64_t, Answered> answers;  // that have come and are not looked at yet, by letter
    std::uint64_t accepted_out = 0;
    std::uint64_t streamed_out = 0;
    std::uint64_t swept_piece = 0;
    std::uint64_t accepted_in = 0;
    std::uint64_t streamed_in = 0;
    std::deque<Incoming> letters;  // that came before their receive
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
};

}  // namespace anyaccel::comm
