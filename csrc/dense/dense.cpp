// The op `dense`: a linear layer and a sigmoid, with the bias and the sigmoid in one pass, and the linear layer alone.

#include "dense.h"

#include <optional>
#include <tuple>

#include "allocation.h"
#include "launch.h"
#include "matrix_products.h"
#include "register_ops.h"
#include "rows.h"

namespace anyaccel {
namespace {

using torch::stable::matmul;
using torch::stable::reshape;
using torch::stable::transpose;

std::vector<std::int64_t> with_columns(const Tensor& x, std::int64_t columns) {
  std::vector<std::int64_t> sizes(x.sizes().begin(), x.sizes().end());
  sizes.back() = columns;
  return sizes;
}

void check(const Arguments& arguments, const Tensor& x, const Tensor& weight) {
  arguments.with_floating_or_double(x, "x", [](auto) {});
  arguments.at_least_dimensions(x, "x", 1);
  arguments.at_least_dimensions(weight, "weight", 2);
  arguments.shape(weight, "weight", {weight.size(0), columns_of(x)}, x, "x");
  arguments.dtype(weight, "weight", x.scalar_type());
}

void check_bias(const Arguments& arguments, const Tensor& bias, const Tensor& weight) {
  arguments.shape(bias, "bias", {weight.size(0)}, weight, "weight");
  arguments.dtype(bias, "bias", weight.scalar_type());
}

// Checks a gradient of the layer's result, or that result.
void check_result(const Arguments& arguments, const Tensor& tensor, const char* name, const Tensor& x,
                  const Tensor& weight) {
  arguments.shape(tensor, name, with_columns(x, weight.size(0)), x, "x and weight");
  arguments.dtype(tensor, name, x.scalar_type());
}

Tensor as_matrix(const Tensor& x) { return contiguous_of(reshape(x, {rows_of(x), columns_of(x)})); }

Tensor dense(Tensor x, Tensor weight, std::optional<Tensor> bias) {
  const Arguments arguments{"dense"};
  check(arguments, x, weight);
  if (bias) check_bias(arguments, *bias, weight);
  const Tensor z = contiguous_of(linear(as_matrix(x), weight));
  const Tensor b = bias ? contiguous_of(*bias) : z;
  arguments.with_floating_or_double(x, "x", [&](auto t) {
    using T = decltype(t);
    Tensor y = z;
    const BiasSigmoidForward<T> kernel{written<T>(y), bias ? read<T>(b) : nullptr, rows_of(z), columns_of(z)};
    launch(z, kernel, Work::of_tiles(rows_of(z), columns_of(z), kTileOf<T>));
  });
  return reshape(z, with_columns(x, weight.size(0)));
}

std::tuple<Tensor, Tensor> products(const Tensor& grad_z, const Tensor& x, const Tensor& weight) {
  const Tensor grad_x = linear(grad_z, transpose(weight, 0, 1));
  return {reshape(grad_x, with_columns(x, columns_of(x))), matmul(transpose(grad_z, 0, 1), as_matrix(x))};
}

std::tuple<Tensor, Tensor, Tensor> dense_backward(Tensor grad, Tensor y, Tensor x, Tensor weight) {
  const Arguments arguments{"dense_backward"};
  check(arguments, x, weight);
  check_result(arguments, y, "y", x, weight);
  check_result(arguments, grad, "grad", x, weight);
  const Tensor d = as_matrix(grad);
  const Tensor value = as_matrix(y);
  const Work work = Work::of_totals(rows_of(d), columns_of(d));
  const std::int64_t groups = groups_with_partials(place_of(d), work);
  Tensor grad_z = empty_of(d);
  Tensor grad_bias = empty_of(d, {work.columns});
  Tensor partials = empty_of(d, {groups, work.columns}, compute_dtype(d));
  arguments.with_floating_or_double(x, "x", [&](auto t) {
    using T = decltype(t);
    const BiasSigmoidBackward<T> kernel{read<T>(d), read<T>(value), written<T>(grad_z), written<Compute<T>>(partials),
                                        work.rows,  work.columns};
    launch(d, kernel, work, groups);
    const ColumnSum<T> sum{read<Compute<T>>(partials), written<T>(grad_bias), groups, work.columns, work.columns};
    launch(d, sum, Work::of_column_sums(groups, work.columns));
  });
  const auto [grad_x, grad_weight] = products(grad_z, x, weight);
  return {grad_x, grad_weight, grad_bias};
}

Tensor dense_linear(Tensor x, Tensor weight, std::optional<Tensor> bias) {
  const Arguments arguments{"dense_linear"};
  check(arguments, x, weight);
  if (bias) check_bias(arguments, *bias, weight);
  return reshape(contiguous_of(linear(as_matrix(x), weight, bias)), with_columns(x, weight.size(0)));
}

std::tuple<Tensor, Tensor> dense_linear_backward(Tensor grad, Tensor x, Tensor weight) {
  const Arguments arguments{"dense_linear_backward"};
  check(arguments, x, weight);
  check_result(arguments, grad, "grad", x, weight);
  return products(as_matrix(grad), x, weight);
}

constexpr Registration kOps[] = {
    ANYACCEL_OP(dense, "dense(Tensor x, Tensor weight, Tensor? bias) -> Tensor"),
    ANYACCEL_OP(dense_backward,
                "dense_backward(Tensor grad, Tensor y, Tensor x, Tensor weight) -> (Tensor, Tensor, Tensor)"),
    ANYACCEL_OP(dense_linear, "dense_linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor"),
    ANYACCEL_OP(dense_linear_backward,
                "dense_linear_backward(Tensor grad, Tensor x, Tensor weight) -> (Tensor, Tensor)"),
};

}  // namespace
}  // namespace anyaccel

ANYACCEL_REGISTER(anyaccel::kOps)
