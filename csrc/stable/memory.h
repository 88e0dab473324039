// The memory ranges of tensors, and proofs that they do not overlap.
//
// A proof is sufficient, not necessary: if none is found, tensors are assumed to overlap.

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tensor_view.h"

namespace anyaccel {

inline std::int64_t item_bytes(const TensorView& view) {
  return static_cast<std::int64_t>(aoti_torch_dtype_element_size(view.dtype));
}

inline bool is_aligned(const void* data, std::size_t item_bytes) {
  return item_bytes == 0 || reinterpret_cast<std::uintptr_t>(data) % item_bytes == 0;
}

// The dimensions with more than one element, by stride. Ordinary tensors have few.
class Dimensions {
 public:
  struct One {
    std::int64_t stride;
    std::int64_t size;
  };

  explicit Dimensions(const TensorView& view) {
    for (std::int64_t i = 0; i < view.dim; ++i) {
      if (view.sizes[i] != 1) {
        are_known_ = are_known_ && count_ < kMost;
        if (!are_known_) {
          return;
        }
        ones_[count_++] = {view.strides[i], view.sizes[i]};
      }
    }
    std::sort(begin(), end(), [](const One& left, const One& right) { return left.stride < right.stride; });
  }

  // Whether each dimension's stride exceeds the extent of all smaller ones, so that no two elements share memory.
  bool are_nested() const {
    std::int64_t reach = 0;
    return are_known_ && std::all_of(begin(), end(), [&](const One& one) {
             const bool steps_over = one.stride > reach;
             reach += one.stride * (one.size - 1);
             return steps_over;
           });
  }

  // Adds a dimension of one element, unless there is one with this stride.
  void include(std::int64_t stride) {
    if (std::any_of(begin(), end(), [stride](const One& one) { return one.stride == stride; })) {
      return;
    }
    are_known_ = are_known_ && count_ < kMost;
    if (are_known_) {
      ones_[count_++] = {stride, 1};
      std::sort(begin(), end(), [](const One& left, const One& right) { return left.stride < right.stride; });
    }
  }

  bool has_strides_of(const Dimensions& other) const {
    return std::equal(begin(), end(), other.begin(), other.end(),
                      [](const One& one, const One& its) { return one.stride == its.stride; });
  }

  std::size_t count() const { return count_; }
  One operator[](std::size_t index) const { return ones_[index]; }
  One* begin() { return ones_.data(); }
  One* end() { return ones_.data() + count_; }
  const One* begin() const { return ones_.data(); }
  const One* end() const { return ones_.data() + count_; }

 private:
  static constexpr std::size_t kMost = 16;

  std::array<One, kMost> ones_;
  std::size_t count_ = 0;
  bool are_known_ = true;
};

// Whether two elements may share memory, as in an expanded tensor or a sliding window.
inline bool overlaps_itself(const TensorView& view) {
  return !view.is_contiguous && view.numel > 1 && !Dimensions(view).are_nested();
}

// The bytes from a tensor's first element to its last.
struct Span {
  std::uintptr_t begin;
  std::uintptr_t end;
  std::uint32_t number;  // the caller's number of the tensor
  bool is_written;

  bool operator==(const Span&) const = default;
};

inline Span span_of(const TensorView& view, std::size_t item_bytes, std::size_t number, bool is_written) {
  const auto begin = reinterpret_cast<std::uintptr_t>(view.data);
  std::int64_t last = view.numel - 1;
  if (!view.is_contiguous && view.numel > 0) {
    last = 0;
    for (std::int64_t i = 0; i < view.dim; ++i) {
      last += view.strides[i] * (view.sizes[i] - 1);
    }
  }
  return {begin, begin + static_cast<std::uintptr_t>(last + 1) * item_bytes, static_cast<std::uint32_t>(number),
          is_written};
}

// Whether any elements of nested dimensions are `distance` apart, considering only dimensions below `count`.
inline bool can_be_apart(const Dimensions& left, const Dimensions& right, std::size_t count, std::int64_t distance) {
  if (count == 0) {
    return distance == 0;
  }
  const auto [stride, size] = left[count - 1];
  const std::int64_t steps = distance / stride;
  for (std::int64_t step = steps - 1; step <= steps + 1; ++step) {
    const std::int64_t rest = distance - step * stride;
    if (step > -right[count - 1].size && step < size && rest > -stride && rest < stride &&
        can_be_apart(left, right, count - 1, rest)) {
      return true;
    }
  }
  return false;
}

// Where the elements of a tensor lie.
struct Layout {
  explicit Layout(const TensorView& view)
      : dimensions(view),
        data(static_cast<const char*>(view.data)),
        bytes(item_bytes(view)),
        is_nested(dimensions.are_nested()) {}

  Dimensions dimensions;
  const char* data;
  std::int64_t bytes;  // of an element
  bool is_nested;
};

// Whether it is proven that tensors with overlapping spans share no element, such as columns of one matrix.
inline bool lie_apart(const Layout& left, const Layout& right) {
  const std::int64_t distance = right.data - left.data;
  if (!left.is_nested || !right.is_nested || left.bytes != right.bytes || distance % left.bytes != 0) {
    return false;
  }
  const std::int64_t apart = distance / left.bytes;
  if (left.dimensions.has_strides_of(right.dimensions)) {
    return !can_be_apart(left.dimensions, right.dimensions, left.dimensions.count(), apart);
  }
  Dimensions of_left = left.dimensions, of_right = right.dimensions;
  for (const auto& one : right.dimensions) {
    of_left.include(one.stride);
  }
  for (const auto& one : left.dimensions) {
    of_right.include(one.stride);
  }
  return of_left.are_nested() && of_right.are_nested() && !can_be_apart(of_left, of_right, of_left.count(), apart);
}

inline bool is_same_view(const TensorView& left, const TensorView& right) {
  return left.data == right.data && left.dtype == right.dtype && same_shape(left, right) && same_layout(left, right);
}

// Finds two overlapping spans, one of them written, for which `may_overlap(number, number)` is false.
//
// Optimizers pass the same tensors in every step: spans that did not overlap in this thread's last call are not sorted
// again.
template <typename MayOverlap>
std::optional<std::pair<std::uint32_t, std::uint32_t>> find_overlap(std::vector<Span>& spans,
                                                                    const MayOverlap& may_overlap) {
  static thread_local std::vector<Span> known_apart;
  if (spans == known_apart) {
    return std::nullopt;
  }
  std::vector<Span> given = spans;
  std::sort(spans.begin(), spans.end(), [](const Span& left, const Span& right) { return left.begin < right.begin; });
  std::uintptr_t end_of_written = 0;
  std::uintptr_t end_of_any = 0;
  bool are_apart = true;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Span& span = spans[i];
    if (span.begin < (span.is_written ? end_of_any : end_of_written)) {
      are_apart = false;  // the spans do not show whether the elements overlap
      for (std::size_t k = i; k-- > 0;) {
        const Span& before = spans[k];
        if (before.end > span.begin && (before.is_written || span.is_written) &&
            !may_overlap(before.number, span.number)) {
          return std::pair(before.number, span.number);
        }
      }
    }
    end_of_any = std::max(end_of_any, span.end);
    end_of_written = span.is_written ? std::max(end_of_written, span.end) : end_of_written;
  }
  if (are_apart) {
    known_apart = std::move(given);
  }
  return std::nullopt;
}

}  // namespace anyaccel
