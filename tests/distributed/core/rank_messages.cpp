#include "rank.h"

namespace fuzz {

void Rank::message(Pending& one, comm::Task task, int peer, const int* source) {
  comm::OperationFacts facts;
  facts.name = "message";
  facts.is_transfer = true;
  facts.peer = peer;
  facts.timeout = timeout_;
  facts.source = source;
  one.parts.push_back(start(*group_, facts, std::move(task)));
}

// Two messages to the next rank, which receives them in reverse order of their tags.
void Rank::ring_of_messages(Pending& one) {
  const int to = (me_ + 1) % world_, from = (me_ + world_ - 1) % world_;
  const std::size_t bytes = size_ * element_bytes(dtype_);
  for (int tag = 0; tag < 2; ++tag) {
    message(one, group_->mailbox().send(to, tag, dtype_, input(one, mine(tag)).data, bytes), to);
  }
  const auto source = std::make_shared<int>(-1);
  for (int tag = 1; tag >= 0; --tag) {
    const Block place = output(one, Numbers(size_), numbers_of(number_, from, tag, size_));
    message(one, group_->mailbox().receive(from, tag, dtype_, place.data, bytes, source.get()), from, source.get());
  }
  one.check = [source, from, title = one.title] { require(*source == from, "another source: " + title); };
}

// Every rank sends to the root, which receives from whoever comes first.
void Rank::messages_from_any(Pending& one) {
  const std::size_t bytes = size_ * element_bytes(dtype_);
  const int tag = 2 + static_cast<int>(number_);
  if (me_ != root_) {
    message(one, group_->mailbox().send(root_, tag, dtype_, input(one, mine()).data, bytes), root_);
    return;
  }
  std::vector<std::pair<std::shared_ptr<int>, Buffer>> received;
  for (int i = 1; i < world_; ++i) {
    const auto source = std::make_shared<int>(-1);
    const auto buffer = std::make_shared<std::vector<unsigned char>>(bytes);
    message(one, group_->mailbox().receive(-1, tag, dtype_, buffer->data(), bytes, source.get()), -1, source.get());
    received.emplace_back(source, buffer);
  }
  for (const auto& [source, buffer] : received) one.inputs.push_back(buffer);
  one.check = [this, received, dtype = dtype_, number = number_, size = size_, title = one.title] {
    std::vector<bool> seen(world_);
    seen[me_] = true;
    for (const auto& [source, buffer] : received) {
      require(*source >= 0 && !seen[*source], "a source came twice: " + title);
      seen[*source] = true;
      require(*buffer == encoded(dtype, numbers_of(number, *source, 0, size)), "another message: " + title);
    }
  };
}

void Rank::differing_message(Pending& one) {
  const int to = (root_ + 1) % world_, tag = 2 + static_cast<int>(number_);
  const std::size_t bytes = size_ * element_bytes(dtype_);
  if (me_ == root_) {
    message(one, group_->mailbox().send(to, tag, dtype_, input(one, mine()).data, bytes), to);
  } else if (me_ == to) {
    const auto source = std::make_shared<int>(-1);
    one.check = [source] {};
    const Block place = output(one, Numbers(size_ + 1), Numbers(size_ + 1));
    const std::size_t more = bytes + element_bytes(dtype_);
    message(one, group_->mailbox().receive(root_, tag, dtype_, place.data, more, source.get()), root_, source.get());
  } else {
    return;
  }
  one.refusal = "send/recv failed";
}

// A receive that is given up while others read messages either has its message, or the next one gets it.
void Rank::given_up(Pending& one) {
  const int to = (root_ + 1) % world_, tag = 2 + static_cast<int>(number_);
  const std::size_t bytes = size_ * element_bytes(dtype_);
  if (me_ == root_) {
    message(one, group_->mailbox().send(to, tag, dtype_, input(one, mine()).data, bytes), to);
  } else if (me_ == to) {
    const auto source = std::make_shared<int>(-1);
    one.check = [source, from = root_, title = one.title] { require(*source == from, "another source: " + title); };
    const Block place = output(one, Numbers(size_), numbers_of(number_, root_, 0, size_));
    const auto receive = [&] {
      message(one, group_->mailbox().receive(root_, tag, dtype_, place.data, bytes, source.get()), root_, source.get());
    };
    receive();
    conclude_some(of_my_own_() % (kInFlight + 1));
    if (!group_->give_up(one.parts.back().operation, "given up")) return;
    one.parts.pop_back();
    receive();
  }
}

void Rank::send_and_wait(int from, int to) {
  Pending one;
  one.title = "a message after a refusal, on rank " + std::to_string(me_);
  const std::size_t bytes = size_ * element_bytes(dtype_);
  const int tag = 2 + static_cast<int>(number_);
  const auto source = std::make_shared<int>(-1);
  if (me_ == from) message(one, group_->mailbox().send(to, tag, dtype_, input(one, mine()).data, bytes), to);
  if (me_ == to) {
    const Block place = output(one, Numbers(size_), numbers_of(number_, from, 0, size_));
    message(one, group_->mailbox().receive(from, tag, dtype_, place.data, bytes, source.get()), from, source.get());
  }
  conclude(one);
}

}  // namespace fuzz
