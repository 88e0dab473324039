// The norms of many tensors, in a few launches.

#pragma once

#include "allocation.h"
#include "multi_tensor.h"
#include "tensor_lists.h"

namespace anyaccel {

// The norm of each tensor of a role, and of all together: `norms` and `total` are float32, (tensors) and (1).
template <int Roles>
void launch_norms(const TensorLists<Roles>& lists, int role, const Tensor& norms, const Tensor* total) {
  const Tensor& like = lists.tensor(0, role);
  std::int64_t elements = 0;
  std::int64_t most_chunks = 1;
  for (std::size_t i = 0; i < lists.size(); ++i) {
    elements = std::max<std::int64_t>(elements, lists.tensor(i, role).numel());
    most_chunks = std::max(most_chunks, chunks_of(lists.tensor(i, role).numel()));
  }
  const std::int64_t groups = groups_for_shares(place_of(like), elements);
  const std::int64_t columns = groups > 0 ? groups : most_chunks;
  const auto tensors = static_cast<std::int64_t>(lists.size());
  const Tensor partials = empty_of(like, {tensors, columns}, ScalarType::Float);
  lists.each_launch([&](auto param, auto grad, const TensorTable<Roles>& table, std::size_t) {
    TensorTable<1> of_role{};
    const auto start = [&](auto type) {
      launch(like, SquaredSums<decltype(type)>{of_role, written<float>(partials), columns}, work_of(of_role), groups);
      of_role.count = 0;
    };
    // a table of one role holds more tensors than one of several, so this one fits
    of_role.first = table.first;
    for (std::int32_t number = 0; number < table.count; ++number) {
      of_role.add(table.elements_of(number), {table.data[number][role]});
    }
    if (role == 0) {
      start(param);
    } else if (role == 1) {
      start(grad);
    } else {
      start(float{});
    }
  });
  // neither a device's threads nor the order in which a row is summed may depend on the call's other tensors
  const Work of_each = groups > 0 ? Work::of_rows(tensors, columns) : Work::of_tiles(tensors, kMostChunks, 32);
  if (total == nullptr) {
    launch(like, RootOfSums{read<float>(partials), written<float>(norms), nullptr, tensors, columns}, of_each);
    return;
  }
  // one group adds up one number per tensor, not one per tensor and group
  const Tensor sums = empty_of(like, {tensors}, ScalarType::Float);
  launch(like, RootOfSums{read<float>(partials), written<float>(norms), written<float>(sums), tensors, columns},
         of_each);
  launch(like, RootOfSums{read<float>(sums), written<float>(*total), nullptr, 1, tensors}, Work::of_rows(1, tensors));
}

}  // namespace anyaccel
