// The op `layer_norm`: schemas, argument checks and launches, for every device.

#include "layer_norm.h"

#include <optional>
#include <tuple>

#include "allocation.h"
#include "launch.h"
#include "norm_arguments.h"
#include "register_ops.h"

namespace anyaccel {
namespace {

void check_affine(const Arguments& arguments, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  arguments.at_least_dimensions(x, "x", 1);
  arguments.shape(weight, "weight", {columns_of(x)}, x, "x");
  arguments.alike(bias, "bias", weight, "weight");
}

std::tuple<Tensor, Tensor, Tensor, Tensor> forward(const Arguments& arguments, const Tensor& x,
                                                   const std::optional<Tensor>& residual, const Tensor& weight,
                                                   const Tensor& bias, double eps) {
  check_affine(arguments, x, weight, bias);
  if (residual.has_value()) {
    arguments.alike(*residual, "residual", x, "x");
  }
  const Tensor from = contiguous_of(x);
  const Tensor w = contiguous_of(weight);
  const Tensor b = contiguous_of(bias);
  const Optional added(residual);
  Tensor y = empty_of(from);
  Tensor sum = residual.has_value() ? empty_of(from) : from;
  Tensor mean = empty_of(from, {rows_of(x)}, compute_dtype(x));
  Tensor inverse_deviation = empty_of(mean);
  with_norm_types(arguments, x, weight, [&](auto t, auto u) {
    using T = decltype(t);
    using W = decltype(u);
    const LayerNormForward<T, W> kernel{read<T>(from),
                                        added.data<T>(),
                                        read<W>(w),
                                        read<W>(b),
                                        residual.has_value() ? written<T>(sum) : nullptr,
                                        written<T>(y),
                                        written<Compute<T>>(mean),
                                        written<Compute<T>>(inverse_deviation),
                                        rows_of(x),
                                        columns_of(x),
                                        static_cast<Compute<T>>(eps)};
    launch(from, kernel, Work::of_tiles(rows_of(x), columns_of(x), kElementsOfAThread));
  });
  return {y, sum, mean, inverse_deviation};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm(Tensor x, Tensor weight, Tensor bias, double eps) {
  const auto [y, sum, mean, inverse_deviation] = forward({"layer_norm"}, x, std::nullopt, weight, bias, eps);
  return {y, mean, inverse_deviation};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> add_layer_norm(Tensor x, Tensor residual, Tensor weight, Tensor bias,
                                                          double eps) {
  return forward({"add_layer_norm"}, x, residual, weight, bias, eps);
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(Tensor grad, std::optional<Tensor> grad_sum, Tensor x,
                                                       Tensor weight, Tensor mean, Tensor inverse_deviation) {
  const Arguments arguments{"layer_norm_backward"};
  check_affine(arguments, x, weight, weight);
  arguments.alike(grad, "grad", x, "x");
  arguments.shape(mean, "mean", {rows_of(x)}, x, "x");
  arguments.dtype(mean, "mean", compute_dtype(x));
  arguments.alike(inverse_deviation, "inverse_deviation", mean, "mean");
  if (grad_sum.has_value()) {
    arguments.alike(*grad_sum, "grad_sum", x, "x");
  }
  const Tensor g = contiguous_of(grad);
  const Tensor from = contiguous_of(x);
  const Tensor w = contiguous_of(weight);
  const Tensor center = contiguous_of(mean);
  const Tensor scale = contiguous_of(inverse_deviation);
  const Optional other(grad_sum);
  const Work work = Work::of_totals(rows_of(x), columns_of(x));
  const std::int64_t groups = groups_with_partials(place_of(from), work);
  Tensor grad_x = empty_of(from);
  Tensor grad_weight = empty_of(w);
  Tensor grad_bias = empty_of(w);
  Tensor partials = empty_of(from, {groups, 2, work.columns}, compute_dtype(x));
  with_norm_types(arguments, x, weight, [&](auto t, auto u) {
    using T = decltype(t);
    using W = decltype(u);
    const LayerNormBackward<T, W> kernel{read<T>(g),
                                         read<T>(from),
                                         other.data<T>(),
                                         read<W>(w),
                                         read<Compute<T>>(center),
                                         read<Compute<T>>(scale),
                                         written<T>(grad_x),
                                         written<Compute<T>>(partials),
                                         work.rows,
                                         work.columns};
    launch(from, kernel, work, groups);
    const Compute<T>* parts = read<Compute<T>>(partials);
    const Work of_columns = Work::of_column_sums(groups, work.columns);
    launch(from, ColumnSum<W>{parts, written<W>(grad_weight), groups, work.columns, 2 * work.columns}, of_columns);
    launch(from, ColumnSum<W>{parts + work.columns, written<W>(grad_bias), groups, work.columns, 2 * work.columns},
           of_columns);
  });
  return {grad_x, grad_weight, grad_bias};
}

constexpr Registration kOps[] = {
    ANYACCEL_OP(layer_norm, "layer_norm(Tensor x, Tensor weight, Tensor bias, float eps) -> (Tensor, Tensor, Tensor)"),
    ANYACCEL_OP(add_layer_norm,
                "add_layer_norm(Tensor x, Tensor residual, Tensor weight, Tensor bias, float eps) -> "
                "(Tensor, Tensor, Tensor, Tensor)"),
    ANYACCEL_OP(layer_norm_backward,
                "layer_norm_backward(Tensor grad, Tensor? grad_sum, Tensor x, Tensor weight, Tensor mean, "
                "Tensor inverse_deviation) -> (Tensor, Tensor, Tensor)"),
};

}  // namespace
}  // namespace anyaccel

ANYACCEL_REGISTER(anyaccel::kOps)
