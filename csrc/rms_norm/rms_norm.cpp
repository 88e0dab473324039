// The op `rms_norm`: schemas, argument checks and launches, for every device.

#include "rms_norm.h"

#include <optional>
#include <tuple>

#include "allocation.h"
#include "launch.h"
#include "norm_arguments.h"
#include "register_ops.h"

namespace anyaccel {
namespace {

std::tuple<Tensor, Tensor, Tensor> forward(const Arguments& arguments, const Tensor& x,
                                           const std::optional<Tensor>& residual, const Tensor& weight, double eps) {
  arguments.at_least_dimensions(x, "x", 1);
  arguments.shape(weight, "weight", {columns_of(x)}, x, "x");
  if (residual.has_value()) {
    arguments.alike(*residual, "residual", x, "x");
  }
  const Tensor from = contiguous_of(x);
  const Tensor w = contiguous_of(weight);
  const Optional added(residual);
  Tensor y = empty_of(from);
  Tensor sum = residual.has_value() ? empty_of(from) : from;
  Tensor inverse_rms = empty_of(from, {rows_of(x)}, compute_dtype(x));
  with_norm_types(arguments, x, weight, [&](auto t, auto u) {
    using T = decltype(t);
    using W = decltype(u);
    const RmsNormForward<T, W> kernel{read<T>(from),
                                      added.data<T>(),
                                      read<W>(w),
                                      residual.has_value() ? written<T>(sum) : nullptr,
                                      written<T>(y),
                                      written<Compute<T>>(inverse_rms),
                                      rows_of(x),
                                      columns_of(x),
                                      static_cast<Compute<T>>(eps)};
    launch(from, kernel, Work::of_tiles(rows_of(x), columns_of(x), kElementsOfAThread));
  });
  return {y, sum, inverse_rms};
}

std::tuple<Tensor, Tensor> rms_norm(Tensor x, Tensor weight, double eps) {
  const auto [y, sum, inverse_rms] = forward({"rms_norm"}, x, std::nullopt, weight, eps);
  return {y, inverse_rms};
}

std::tuple<Tensor, Tensor, Tensor> add_rms_norm(Tensor x, Tensor residual, Tensor weight, double eps) {
  return forward({"add_rms_norm"}, x, residual, weight, eps);
}

std::tuple<Tensor, Tensor> rms_norm_backward(Tensor grad, std::optional<Tensor> grad_sum, Tensor x, Tensor weight,
                                             Tensor inverse_rms) {
  const Arguments arguments{"rms_norm_backward"};
  arguments.at_least_dimensions(x, "x", 1);
  arguments.alike(grad, "grad", x, "x");
  arguments.shape(weight, "weight", {columns_of(x)}, x, "x");
  arguments.shape(inverse_rms, "inverse_rms", {rows_of(x)}, x, "x");
  arguments.dtype(inverse_rms, "inverse_rms", compute_dtype(x));
  if (grad_sum.has_value()) {
    arguments.alike(*grad_sum, "grad_sum", x, "x");
  }
  const Tensor g = contiguous_of(grad);
  const Tensor from = contiguous_of(x);
  const Tensor w = contiguous_of(weight);
  const Tensor scale = contiguous_of(inverse_rms);
  const Optional other(grad_sum);
  const Work work = Work::of_totals(rows_of(x), columns_of(x));
  const std::int64_t groups = groups_with_partials(place_of(from), work);
  Tensor grad_x = empty_of(from);
  Tensor grad_weight = empty_of(w);
  Tensor partials = empty_of(from, {groups, work.columns}, compute_dtype(x));
  with_norm_types(arguments, x, weight, [&](auto t, auto u) {
    using T = decltype(t);
    using W = decltype(u);
    const RmsNormBackward<T, W> kernel{read<T>(g),
                                       read<T>(from),
                                       other.data<T>(),
                                       read<W>(w),
                                       read<Compute<T>>(scale),
                                       written<T>(grad_x),
                                       written<Compute<T>>(partials),
                                       work.rows,
                                       work.columns};
    launch(from, kernel, work, groups);
    const ColumnSum<W> sum{read<Compute<T>>(partials), written<W>(grad_weight), groups, work.columns, work.columns};
    launch(from, sum, Work::of_column_sums(groups, work.columns));
  });
  return {grad_x, grad_weight};
}

constexpr Registration kOps[] = {
    ANYACCEL_OP(rms_norm, "rms_norm(Tensor x, Tensor weight, float eps) -> (Tensor, Tensor)"),
    ANYACCEL_OP(add_rms_norm,
                "add_rms_norm(Tensor x, Tensor residual, Tensor weight, float eps) -> (Tensor, Tensor, Tensor)"),
    ANYACCEL_OP(rms_norm_backward,
                "rms_norm_backward(Tensor grad, Tensor? grad_sum, Tensor x, Tensor weight, Tensor inverse_rms) -> "
                "(Tensor, Tensor)"),
};

}  // namespace
}  // namespace anyaccel

ANYACCEL_REGISTER(anyaccel::kOps)
