// The norms of many tensors, by two launches or a few more.

#pragma once

#include "allocation.h"
#include "multi_tensor.h"
#include "tensor_lists.h"

namespace anyaccel {

// Norms of each tensor of a role, and of all together: `norms` and `total` are float32, (tensors) and (1).
template <int Roles>
void launch_norms(const TensorLists<Roles>& lists, int role, const Tensor& norms, const Tensor* total) {
  const Tensor& like = lists.tensor(0, role);
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < lists.size(); ++i) {
    elements = std::max<std::int64_t>(elements, lists.tensor(i, role).numel());
  }
  const std::int64_t groups = groups_for_shares(place_of(like), elements);
  const auto tensors = static_cast<std::int64_t>(lists.size());
  const Tensor partials = empty_of(like, {tensors, groups}, ScalarType::Float);
  lists.each_launch([&](auto param, auto grad, const TensorTable<Roles>& table, std::size_t) {
    TensorTable<1> of_role{};
    const auto start = [&](auto type) {
      launch(like, SquaredSums<decltype(type)>{of_role, written<float>(partials)}, Work::of_rows(groups, elements),
             groups);
      of_role.count = 0;
    };
    // a table of one role holds more tensors than one of several, so this one fits
    of_role.first = table.first;
    of_role.count = table.count;
    for (std::int32_t number = 0; number < table.count; ++number) {
      of_role.ends[number] = table.ends[number];
      of_role.data[number][0] = table.data[number][role];
    }
    if (role == 0) {
      start(param);
    } else if (role == 1) {
      start(grad);
    } else {
      start(float{});
    }
  });
  const Work of_each = Work::of_rows(tensors, groups);
  if (total == nullptr) {
    launch(like, RootOfSums{read<float>(partials), written<float>(norms), nullptr, tensors, groups}, of_each);
    return;
  }
  // one group adds up a number for each tensor, not one for each tensor and group
  const Tensor sums = empty_of(like, {tensors}, ScalarType::Float);
  launch(like, RootOfSums{read<float>(partials), written<float>(norms), written<float>(sums), tensors, groups},
         of_each);
  launch(like, RootOfSums{read<float>(sums), written<float>(*total), nullptr, 1, tensors}, Work::of_rows(1, tensors));
}

}  // namespace anyaccel
