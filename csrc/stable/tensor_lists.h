// Lists of tensors for multi-tensor kernels: checked, made dense, and split into launches.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "allocation.h"
#include "arguments.h"
#include "launch.h"
#include "tensor_table.h"
#include "tensor_view.h"

namespace anyaccel {

// A list that a kernel reads, or reads and writes.
struct ListRole {
  const char* name;
  bool is_written;
  bool is_float32;  // like optimizer states; others may have any of the three precisions
};

template <int Roles>
class TensorLists {
 public:
  using Lists = std::array<std::vector<Tensor>, Roles>;

  TensorLists(const Arguments& arguments, const std::array<ListRole, Roles>& roles, Lists lists)
      : arguments_(arguments), roles_(roles), originals_(std::move(lists)) {
    for (int role = 1; role < Roles; ++role) {
      if (originals_[role].size() != originals_[0].size()) {
        arguments_.refuse(roles_[role].name, "with " + std::to_string(originals_[role].size()) + " tensors",
                          std::to_string(originals_[0].size()) + ", as " + roles_[0].name + " has",
                          "pass one tensor in each list for every parameter");
      }
    }
    for (std::size_t i = 0; i < size(); ++i) {
      check(i);
    }
    dense_ = originals_;
    for (std::size_t i = 0; i < size(); ++i) {
      make_dense(i);
    }
  }

  std::size_t size() const { return originals_[0].size(); }

  const Tensor& tensor(std::size_t index, int role) const { return dense_[role][index]; }

  // Calls `start(param type, grad type, table)` for as many tensors at a time as a launch takes, whose dtypes in the
  // first two roles agree. With a single role, both types are its own.
  template <typename Start>
  void each_launch(const Start& start) const {
    each_launch_of([](std::size_t) { return 0.0; }, start);
  }

  // Like each_launch, for tensors whose `key` also agrees.
  template <typename Key, typename Start>
  void each_launch_of(const Key& key, const Start& start) const {
    TensorTable<Roles> table{};
    std::size_t begin = 0;
    for (std::size_t i = 0; i <= size(); ++i) {
      const bool ends = i == size() || table.count == TensorTable<Roles>::kCapacity ||
                        (i > begin && (!same_dtypes(i, begin) || key(i) != key(begin)));
      if (ends && table.count > 0) {
        with_types(begin, [&](auto param, auto grad) { start(param, grad, table, begin); });
        table.count = 0;
      }
      if (i == size()) {
        break;
      }
      if (table.count == 0) {
        begin = i;
        table.first = static_cast<std::int32_t>(i);
      }
      add(table, i);
    }
  }

  // Copies results back to tensors that had to be made dense.
  void finish() {
    const NoGradient scope;
    for (const auto& [index, role] : copied_) {
      if (roles_[role].is_written) {
        torch::stable::copy_(originals_[role][index], dense_[role][index]);
      }
    }
  }

 private:
  std::string place(std::size_t index, int role) const {
    return std::string(roles_[role].name) + "[" + std::to_string(index) + "]";
  }

  void check(std::size_t index) const {
    const Tensor& first = originals_[0][index];
    arguments_.same_device(first, place(index, 0).c_str(), originals_[0][0], place(0, 0).c_str());
    for (int role = 0; role < Roles; ++role) {
      const Tensor& tensor = originals_[role][index];
      const bool fits = tensor.device() == first.device() && std::ranges::equal(tensor.sizes(), first.sizes());
      const ScalarType dtype = tensor.scalar_type();
      const bool is_known = dtype == ScalarType::Float ||
                            (!roles_[role].is_float32 && (dtype == ScalarType::BFloat16 || dtype == ScalarType::Half));
      if (!fits || !is_known) {
        refuse(index, role);
      }
    }
  }

  [[noreturn]] void refuse(std::size_t index, int role) const {
    const Tensor& tensor = originals_[role][index];
    const std::string name = place(index, role);
    arguments_.same_device(tensor, name.c_str(), originals_[0][index], place(index, 0).c_str());
    arguments_.same_shape(tensor, name.c_str(), originals_[0][index], place(index, 0).c_str());
    const char* const expected = roles_[role].is_float32 ? "float32" : "float32, bfloat16 or float16";
    if (roles_[role].is_written) {
      arguments_.refuse_written_dtype(name, tensor.scalar_type(), expected);
    }
    arguments_.refuse_dtype(name, tensor.scalar_type(), expected);
  }

  // Elementwise work over memory is correct when all tensors fill it in the same order.
  void make_dense(std::size_t index) {
    const TensorView first = view_of(originals_[0][index].get());
    bool shares_layout = is_dense(first);
    for (int role = 1; shares_layout && role < Roles; ++role) {
      shares_layout = same_layout(view_of(originals_[role][index].get()), first);
    }
    for (int role = 0; !shares_layout && role < Roles; ++role) {
      const Tensor& tensor = originals_[role][index];
      if (!tensor.is_contiguous()) {
        dense_[role][index] = contiguous_of(tensor);
        copied_.emplace_back(index, role);
      }
    }
  }

  bool same_dtypes(std::size_t left, std::size_t right) const {
    for (int role = 0; role < std::min(Roles, 2); ++role) {
      if (dense_[role][left].scalar_type() != dense_[role][right].scalar_type()) {
        return false;
      }
    }
    return true;
  }

  void add(TensorTable<Roles>& table, std::size_t index) const {
    void* pointers[Roles];
    for (int role = 0; role < Roles; ++role) {
      pointers[role] = dense_[role][index].data_ptr();
    }
    table.add(dense_[0][index].numel(), pointers);
  }

  template <typename Body>
  void with_types(std::size_t index, const Body& body) const {
    arguments_.with_float32_or_less(dense_[0][index].scalar_type(), roles_[0].name, [&](auto param) {
      constexpr int kGrad = Roles > 1 ? 1 : 0;
      arguments_.with_float32_or_less(dense_[kGrad][index].scalar_type(), roles_[kGrad].name,
                                      [&](auto grad) { body(param, grad); });
    });
  }

  Arguments arguments_;
  std::array<ListRole, Roles> roles_;
  Lists originals_;
  Lists dense_;
  std::vector<std::pair<std::size_t, int>> copied_;
};

template <int Roles>
Work work_of(const TensorTable<Roles>& table) {
  return Work::of_tensors(table.elements(), table.chunks());
}

}  // namespace anyaccel
