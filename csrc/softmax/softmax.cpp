// The op `softmax`: schemas, argument checks and launches, for every device.

#include "softmax.h"

#include <optional>

#include "allocation.h"
#include "arguments.h"
#include "launch.h"
#include "register_ops.h"

namespace anyaccel {
namespace {

Tensor forward(const Arguments& arguments, const Tensor& x, const std::optional<Tensor>& mask, double scale,
               bool is_causal) {
  const Tensor from = contiguous_of(x);
  Tensor y = empty_of(from);
  SoftmaxMask hidden{nullptr, {0, 0, 0, 0}, 1, 1, is_causal};
  const std::int64_t dim = x.dim();
  hidden.queries = std::max<std::int64_t>(1, dim >= 2 ? x.size(dim - 2) : 1);
  hidden.heads = std::max<std::int64_t>(1, dim >= 3 ? x.size(dim - 3) : 1);
  std::optional<Tensor> given = mask;
  if (mask.has_value()) {
    const std::int64_t last = mask->dim() - 1;
    if (last >= 0 && mask->size(last) > 1 && mask->stride(last) > 1) {
      given = contiguous_of(*mask);
    }
    hidden.mask = static_cast<const std::uint8_t*>(given->const_data_ptr());
    for (std::int64_t back = 1; back <= given->dim(); ++back) {
      const std::int64_t at = given->dim() - back;
      hidden.strides[4 - back] = given->size(at) == 1 ? 0 : given->stride(at);
    }
  }
  arguments.with_floating(x, "x", [&](auto t) {
    using T = decltype(t);
    const SoftmaxForward<T> kernel{read<T>(from), written<T>(y), hidden,
                                   rows_of(x),    columns_of(x), static_cast<Compute<T>>(scale)};
    launch(from, kernel, Work::of_tiles(rows_of(x), columns_of(x), kElementsOfAThread));
  });
  return y;
}

Tensor scaled_masked_softmax(Tensor x, std::optional<Tensor> mask, double scale) {
  const Arguments arguments{"scaled_masked_softmax"};
  arguments.at_least_dimensions(x, "x", 1);
  if (x.dim() > 4) {
    arguments.refuse("x", "of shape " + text_of(x), "at most 4 dimensions", "pass x.flatten(0, -4)");
  }
  if (mask.has_value()) {
    arguments.same_device(*mask, "mask", x, "x");
    if (mask->scalar_type() != ScalarType::Bool && mask->scalar_type() != ScalarType::Byte) {
      arguments.refuse("mask", std::string("of ").append(text_of(mask->scalar_type())), "bool or uint8",
                       "pass mask.bool(), in which True hides a score");
    }
    bool fits = mask->dim() <= x.dim();
    for (std::int64_t back = 1; fits && back <= mask->dim(); ++back) {
      const std::int64_t size = mask->size(mask->dim() - back);
      fits = size == 1 || size == x.size(x.dim() - back);
    }
    if (!fits) {
      arguments.refuse("mask", "of shape " + text_of(*mask), "one that expands to x's " + text_of(x),
                       "add dimensions of size 1, such as mask[:, None, None, :] for a mask of (batch, keys)");
    }
  }
  return forward(arguments, x, mask, scale, false);
}

Tensor scaled_causal_softmax(Tensor x, double scale) {
  const Arguments arguments{"scaled_upper_triang_masked_softmax"};
  arguments.at_least_dimensions(x, "x", 2);
  if (x.size(x.dim() - 2) > columns_of(x)) {
    arguments.refuse("x", "of shape " + text_of(x), "at least as many columns as rows in each matrix",
                     "pass the scores of a key for every query: (..., queries, keys)");
  }
  return forward(arguments, x, std::nullopt, scale, true);
}

Tensor softmax_backward(Tensor grad, Tensor y, double scale) {
  const Arguments arguments{"softmax_backward"};
  arguments.at_least_dimensions(y, "y", 1);
  arguments.alike(grad, "grad", y, "y");
  const Tensor g = contiguous_of(grad);
  const Tensor p = contiguous_of(y);
  Tensor grad_x = empty_of(p);
  arguments.with_floating(y, "y", [&](auto t) {
    using T = decltype(t);
    const SoftmaxBackward<T> kernel{read<T>(g), read<T>(p),    written<T>(grad_x),
                                    rows_of(y), columns_of(y), static_cast<Compute<T>>(scale)};
    launch(p, kernel, Work::of_tiles(rows_of(y), columns_of(y), kElementsOfAThread));
  });
  return grad_x;
}

constexpr Registration kOps[] = {
    ANYACCEL_OP(scaled_masked_softmax, "scaled_masked_softmax(Tensor x, Tensor? mask, float scale) -> Tensor"),
    ANYACCEL_OP(scaled_causal_softmax, "scaled_upper_triang_masked_softmax(Tensor x, float scale) -> Tensor"),
    ANYACCEL_OP(softmax_backward, "softmax_backward(Tensor grad, Tensor y, float scale) -> Tensor"),
};

}  // namespace
}  // namespace anyaccel

ANYACCEL_REGISTER(anyaccel::kOps)
