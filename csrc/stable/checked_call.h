// Checks that apply to the arguments of every op, made before its function is called, so that no op can omit them.
//
// All tensors must be on one device that has kernels, at addresses that are multiples of their element size. In tensors
// that the schema marks as written, no two elements may share memory, and none may be part of another argument, except
// for a tensor that is read and written at the same position in two lists.

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
#include "memory_check.h"
#include "schema_names.h"

namespace anyaccel {

// A string as a template argument.
template <std::size_t Size>
struct Text {
  char text[Size];

  constexpr Text(const char (&from)[Size]) { std::copy_n(from, Size, text); }
  constexpr std::string_view view() const { return {text, Size - 1}; }

  // Whether a schema marks an argument as written. A plain loop: with UBSan, the library function is not constexpr.
  constexpr bool writes() const {
    for (const char letter : text) {
      if (letter == '!') {
        return true;
      }
    }
    return false;
  }
};

class CallCheck {
 public:
  CallCheck(const SchemaNames& names, bool writes)
      : names_(names), arguments_{names.op().c_str()}, memory_(names), writes_(writes) {}

  void take(const Tensor& tensor) {
    look(tensor, Operand::kNoList);
    ++argument_;
  }

  void take(const std::optional<Tensor>& tensor) {
    if (tensor.has_value()) {
      look(*tensor, Operand::kNoList);
    }
    ++argument_;
  }

  void take(const std::vector<Tensor>& tensors) {
    if (writes_) {
      memory_.reserve(memory_.operands().size() + tensors.size());
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      look(tensors[i], static_cast<std::uint32_t>(i));
    }
    lists_.emplace_back(argument_++, tensors.size());
  }

  template <typename Other>
  void take(const Other&) {
    ++argument_;
  }

  void finish() {
    if (const auto shared = memory_.find_shared()) {
      refuse_sizes(shared->first);
      refuse_sizes(shared->second);
      memory_.refuse_shared(*shared);
    }
  }

 private:
  // If sizes do not match either, reports that instead: it is the more likely mistake.
  void refuse_sizes(const Operand& operand) const {
    for (const auto& [argument, size] : lists_) {
      if (size != lists_[0].second) {
        arguments_.refuse(names_.name(argument).c_str(), "with " + std::to_string(size) + " tensors",
                          std::to_string(lists_[0].second) + ", as " + names_.name(lists_[0].first) + " has",
                          "pass one tensor in each list for every parameter");
      }
    }
    for (const Operand& first : memory_.operands()) {
      if (operand.index != Operand::kNoList && first.index == operand.index && first.argument == lists_[0].first) {
        arguments_.same_shape(tensor_of(operand.tensor), memory_.name(operand).c_str(), tensor_of(first.tensor),
                              memory_.name(first).c_str());
      }
    }
  }

  void look(const Tensor& tensor, std::uint32_t index) {
    const Operand operand{tensor.get(), index, argument_, names_.is_written(argument_)};
    const Place place = place_of(tensor);
    if (first_.tensor == nullptr) {
      first_ = operand;
      place_ = place;
    } else if (place.runtime != place_.runtime || place.device != place_.device) {
      arguments_.refuse_device(memory_.name(operand), memory_.name(first_));
    }
    if (writes_) {
      const TensorView view = view_of(tensor.get());
      memory_.look(operand, view, static_cast<std::size_t>(item_bytes(view)));
    } else {
      memory_.check_alignment(operand, tensor.const_data_ptr(), tensor.element_size());
    }
  }

  const SchemaNames& names_;
  Arguments arguments_;
  MemoryCheck memory_;
  bool writes_;
  std::uint16_t argument_ = 0;
  Operand first_{};
  Place place_{};
  std::vector<std::pair<std::size_t, std::size_t>> lists_;  // the number and the length of each list argument
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

// The function of a writing op for tensors whose values a flag changes (negated and conjugated views) or that
// have no memory (torch's zero gradients). torch would materialise them, call the op, and then fail, after the op has
// written.
template <Text Schema, auto Function>
struct RefusedCall;

template <Text Schema, typename Result, typename... Given, Result (*Function)(Given...)>
struct RefusedCall<Schema, Function> {
  [[noreturn]] static Result call(Given&...) {
    const SchemaNames names(Schema.view());
    Arguments{names.op().c_str()}.refuse("a tensor", "that a flag marks as negated, conjugated or zero",
                                         "its values in memory, where the op writes", "call clone() on it");
  }
};

}  // namespace anyaccel
