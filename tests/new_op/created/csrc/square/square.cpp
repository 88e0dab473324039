// The op `square`: schemas, argument checks and launches, for every device.

#include "square.h"

#include "launch.h"
#include "register_ops.h"

namespace anyaccel {
namespace {

using torch::stable::contiguous;
using torch::stable::empty_like;

Tensor square(Tensor x) {
  const Arguments arguments{"square"};
  const Tensor from = contiguous(x);
  Tensor y = empty_like(from);
  arguments.with_floating(x, "x", [&](auto t) {
    using T = decltype(t);
    launch(from, SquareForward<T>{read<T>(from), written<T>(y), from.numel()}, Work::of_elements(from.numel()));
  });
  return y;
}

Tensor square_backward(Tensor grad, Tensor x) {
  const Arguments arguments{"square_backward"};
  arguments.alike(grad, "grad", x, "x");
  const Tensor d = contiguous(grad);
  const Tensor from = contiguous(x);
  Tensor grad_x = empty_like(from);
  arguments.with_floating(x, "x", [&](auto t) {
    using T = decltype(t);
    const SquareBackward<T> kernel{read<T>(d), read<T>(from), written<T>(grad_x), from.numel()};
    launch(from, kernel, Work::of_elements(from.numel()));
  });
  return grad_x;
}

constexpr Registration kOps[] = {
    ANYACCEL_OP(square, "square(Tensor x) -> Tensor"),
    ANYACCEL_OP(square_backward, "square_backward(Tensor grad, Tensor x) -> Tensor"),
};

}  // namespace
}  // namespace anyaccel

ANYACCEL_REGISTER(anyaccel::kOps)
