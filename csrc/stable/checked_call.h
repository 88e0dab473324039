// What holds for the arguments of every op, checked before its function is called, so that no op can forget it.
//
// All tensors are on one device that kernels run on, and their addresses are multiples of their elements' size. Of what
// the schema marks as written, no two elements share memory, and none is part of another argument, but for a tensor
// that is read and written at the same place of two lists.

#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments.h"
#include "launch.h"
#include "memory.h"

namespace anyaccel {

// A string as a template's argument.
template <std::size_t Size>
struct Text {
  char text[Size];

  constexpr Text(const char (&from)[Size]) { std::copy_n(from, Size, text); }
  constexpr std::string_view view() const { return {text, Size - 1}; }

  // Whether a schema marks an argument as written. A loop of its own: UBSan's checks make the library's no constant.
  constexpr bool writes() const {
    for (const char letter : text) {
      if (letter == '!') {
        return true;
      }
    }
    return false;
  }
};

// The name of an op, and the names of its arguments, as its schema has them.
class SchemaNames {
 public:
  explicit SchemaNames(std::string_view schema) : op_(schema.substr(0, schema.find('('))) {
    std::size_t depth = 0;
    std::size_t begin = op_.size() + 1;
    for (std::size_t at = begin; at < schema.size(); ++at) {
      const char letter = schema[at];
      if (depth == 0 && (letter == ',' || letter == ')')) {
        add(schema.substr(begin, at - begin));
        begin = at + 1;
        if (letter == ')') {
          break;
        }
      }
      depth += letter == '(' ? 1 : 0;
      depth -= letter == ')' ? 1 : 0;
    }
  }

  const std::string& op() const { return op_; }
  const std::string& name(std::size_t argument) const { return arguments_[argument].name; }
  bool is_written(std::size_t argument) const { return arguments_[argument].is_written; }

 private:
  struct Argument {
    std::string name;
    bool is_written;
  };

  void add(std::string_view argument) {
    const std::size_t space = argument.rfind(' ');
    const std::string_view name = argument.substr(space == argument.npos ? 0 : space + 1);
    if (!name.empty() && name != "*") {
      arguments_.push_back({std::string(name), argument.find('!') != argument.npos});
    }
  }

  std::string op_;
  std::vector<Argument> arguments_;
};

class CallCheck {
 public:
  CallCheck(const SchemaNames& names, bool writes) : names_(names), arguments_{names.op().c_str()}, writes_(writes) {}

  void take(const Tensor& tensor) { look({&tensor, argument_++, kNoList}); }

  void take(const std::optional<Tensor>& tensor) {
    if (tensor.has_value()) {
      look({&*tensor, argument_, kNoList});
    }
    ++argument_;
  }

  void take(const std::vector<Tensor>& tensors) {
    if (writes_) {
      operands_.reserve(operands_.size() + tensors.size());
      spans_.reserve(spans_.size() + tensors.size());
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      look({&tensors[i], argument_, i});
    }
    lists_.emplace_back(argument_++, tensors.size());
  }

  template <typename Other>
  void take(const Other&) {
    ++argument_;
  }

  void finish() {
    const auto may_overlap = [&](std::uint32_t left, std::uint32_t right) {
      const Operand& one = operands_[left];
      const Operand& other = operands_[right];
      const TensorView view = view_of(one.tensor->get());
      const TensorView other_view = view_of(other.tensor->get());
      const bool is_one_place = one.index != kNoList && one.index == other.index &&
                                names_.is_written(one.argument) != names_.is_written(other.argument);
      return (is_one_place && is_same_view(view, other_view)) || lie_apart(view, other_view);
    };
    if (const auto found = find_overlap(spans_, may_overlap)) {
      refuse_sizes(operands_[found->first]);
      refuse_sizes(operands_[found->second]);
      arguments_.refuse(name(operands_[found->first]).c_str(),
                        "which shares memory with " + name(operands_[found->second]),
                        "memory of its own, as one of them is written", "clone one of them");
    }
  }

 private:
  static constexpr std::size_t kNoList = ~std::size_t{0};

  struct Operand {
    const Tensor* tensor;
    std::size_t argument;
    std::size_t index;  // in a list
  };

  std::string name(const Operand& operand) const {
    const std::string& name = names_.name(operand.argument);
    return operand.index == kNoList ? name : name + "[" + std::to_string(operand.index) + "]";
  }

  // Where sizes do not fit either, says that instead: it is the likelier mistake.
  void refuse_sizes(const Operand& operand) const {
    for (const auto& [argument, size] : lists_) {
      if (size != lists_[0].second) {
        arguments_.refuse(names_.name(argument).c_str(), "with " + std::to_string(size) + " tensors",
                          std::to_string(lists_[0].second) + ", as " + names_.name(lists_[0].first) + " has",
                          "pass one of each a parameter");
      }
    }
    for (const Operand& first : operands_) {
      if (operand.index != kNoList && first.index == operand.index && first.argument == lists_[0].first) {
        arguments_.same_shape(*operand.tensor, name(operand).c_str(), *first.tensor, name(first).c_str());
      }
    }
  }

  void look(const Operand& operand) {
    const Tensor& tensor = *operand.tensor;
    if (first_.tensor == nullptr) {
      first_ = operand;
      place_ = place_of(tensor);
    } else if (const Place place = place_of(tensor); place.runtime != place_.runtime || place.device != place_.device) {
      arguments_.refuse(name(operand).c_str(), "on another device than " + name(first_), "the same device",
                        "move one of them");
    }
    if (!writes_) {
      check_alignment(operand, tensor.const_data_ptr(), tensor.element_size());
      return;
    }
    const TensorView view = view_of(tensor.get());
    const auto bytes = static_cast<std::size_t>(item_bytes(view));
    check_alignment(operand, view.data, bytes);
    const bool is_written = names_.is_written(operand.argument);
    if (is_written && overlaps_itself(view)) {
      arguments_.refuse(name(operand).c_str(), "whose elements share memory", "one place for each", "clone it");
    }
    if (view.numel > 0) {
      spans_.push_back(span_of(view, bytes, operands_.size(), is_written));
      operands_.push_back(operand);
    }
  }

  void check_alignment(const Operand& operand, const void* data, std::size_t bytes) const {
    if (!is_aligned(data, bytes)) {
      arguments_.refuse(name(operand).c_str(), "at an odd address",
                        "a multiple of the " + std::to_string(bytes) + " bytes of an element", "clone it");
    }
  }

  const SchemaNames& names_;
  Arguments arguments_;
  bool writes_;
  std::size_t argument_ = 0;
  Operand first_{nullptr, 0, 0};
  Place place_{};
  std::vector<Operand> operands_;
  std::vector<std::pair<std::size_t, std::size_t>> lists_;  // the number of each argument that is one, and its length
  std::vector<Span> spans_;
};

template <Text Schema, auto Function>
struct CheckedCall;

template <Text Schema, typename Result, typename... Given, Result (*Function)(Given...)>
struct CheckedCall<Schema, Function> {
  static Result call(Given&... given) {
    static const SchemaNames names(Schema.view());
    CallCheck check(names, Schema.writes());
    (check.take(std::as_const(given)), ...);
    check.finish();
    return Function(std::move(given)...);
  }
};

// The function of an op that writes, for tensors whose values a flag changes (negated and conjugated views) or that
// have no memory (zeros of torch's derivatives). torch would materialise them, call the op, and then fail: after the
// writing.
template <Text Schema, auto Function>
struct RefusedCall;

template <Text Schema, typename Result, typename... Given, Result (*Function)(Given...)>
struct RefusedCall<Schema, Function> {
  [[noreturn]] static Result call(Given&...) {
    const SchemaNames names(Schema.view());
    Arguments{names.op().c_str()}.refuse("a tensor", "that is negated, conjugated or zero by a flag",
                                         "its values in memory, as the op writes", "call clone() on it");
  }
};

}  // namespace anyaccel
