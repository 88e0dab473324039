// Checks of the memory of a call's tensors.
//
// Addresses must be multiples of the element size. In a written tensor, no two elements may share memory, and none may
// be part of another argument, except for a tensor that is read and written at the same position in two lists.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arguments.h"
#include "memory.h"
#include "schema_names.h"
#include "tensor_view.h"

namespace anyaccel {

// A tensor of a call; a small struct, as a call may have thousands.
struct Operand {
  static constexpr std::uint32_t kNoList = ~std::uint32_t{0};

  AtenTensorHandle tensor;
  std::uint32_t index;     // the index in a list
  std::uint16_t argument;  // its number in the schema
  bool is_written;
};

class MemoryCheck {
 public:
  using Pair = std::pair<Operand, Operand>;

  explicit MemoryCheck(const SchemaNames& names) : names_(names), arguments_{names.op().c_str()} {}

  void reserve(std::size_t count) {
    operands_.reserve(count);
    spans_.reserve(count);
  }

  const std::vector<Operand>& operands() const { return operands_; }

  std::string name(const Operand& operand) const {
    const std::string& name = names_.name(operand.argument);
    return operand.index == Operand::kNoList ? name : name + "[" + std::to_string(operand.index) + "]";
  }

  void check_alignment(const Operand& operand, const void* data, std::size_t bytes) const {
    if (!is_aligned(data, bytes)) {
      arguments_.refuse(name(operand).c_str(), "at an odd address",
                        "a multiple of the " + std::to_string(bytes) + " bytes of an element",
                        "pass " + name(operand) + ".clone()");
    }
  }

  // Checks a single tensor, and records it for find_shared(); `bytes` is the element size.
  void look(const Operand& operand, const TensorView& view, std::size_t bytes) {
    check_alignment(operand, view.data, bytes);
    if (operand.is_written && overlaps_itself(view)) {
      arguments_.refuse((name(operand) + ",").c_str(), "whose elements share memory",
                        "separate memory for each, as the op writes them", "pass " + name(operand) + ".clone()");
    }
    if (view.numel > 0) {
      spans_.push_back(span_of(view, bytes, operands_.size(), operand.is_written));
      operands_.push_back(operand);
    }
  }

  // Called once, as it sorts the recorded spans.
  std::optional<Pair> find_shared() {
    std::vector<std::optional<Layout>> layouts;  // of operands whose spans overlap, which few calls have
    const auto layout_of = [&](std::uint32_t number) -> const Layout& {
      layouts.resize(operands_.size());
      std::optional<Layout>& layout = layouts[number];
      return layout ? *layout : layout.emplace(view_of(operands_[number].tensor));
    };
    const auto found = find_overlap(spans_, [&](std::uint32_t left, std::uint32_t right) {
      return is_one_place(operands_[left], operands_[right]) || lie_apart(layout_of(left), layout_of(right));
    });
    return found ? std::optional(Pair(operands_[found->first], operands_[found->second])) : std::nullopt;
  }

  [[noreturn]] void refuse_shared(const Pair& shared) const {
    arguments_.refuse((name(shared.first) + ",").c_str(), "which shares memory with " + name(shared.second),
                      "separate memory, as one of them is written",
                      "pass " + name(shared.first.is_written ? shared.second : shared.first) + ".clone()");
  }

 private:
  // Whether a tensor is read and written at the same position in two lists.
  static bool is_one_place(const Operand& one, const Operand& other) {
    return one.index != Operand::kNoList && one.index == other.index && one.is_written != other.is_written &&
           is_same_view(view_of(one.tensor), view_of(other.tensor));
  }

  const SchemaNames& names_;
  Arguments arguments_;
  std::vector<Operand> operands_;
  std::vector<Span> spans_;
};

}  // namespace anyaccel
