// The op `activations`: schemas, argument checks and launches, for every device.

#include "activations.h"

#include <tuple>

#include "allocation.h"
#include "launch.h"
#include "register_ops.h"
#include "rows.h"

namespace anyaccel {
namespace {

template <typename Activation>
Tensor gated(const Arguments& arguments, const Tensor& gate, const Tensor& up) {
  arguments.at_least_dimensions(gate, "gate", 1);
  arguments.alike(up, "up", gate, "gate");
  const Rows g(gate);
  const Rows u(up);
  Tensor y = empty_of(gate);
  arguments.with_floating(gate, "gate", [&](auto t) {
    using T = decltype(t);
    const GatedForward<T, Activation> kernel{g.data<T>(), u.data<T>(),   written<T>(y),   g.stride(),
                                             u.stride(),  rows_of(gate), columns_of(gate)};
    launch(gate, kernel, Work::of_tiles(rows_of(gate), columns_of(gate), kTileOf<T>));
  });
  return y;
}

template <typename Activation>
std::tuple<Tensor, Tensor> gated_backward(const Arguments& arguments, const Tensor& grad, const Tensor& gate,
                                          const Tensor& up) {
  arguments.at_least_dimensions(gate, "gate", 1);
  arguments.alike(up, "up", gate, "gate");
  arguments.alike(grad, "grad", gate, "gate");
  const Tensor d = contiguous_of(grad);
  const Rows g(gate);
  const Rows u(up);
  Tensor grad_gate = empty_of(gate);
  Tensor grad_up = empty_of(gate);
  arguments.with_floating(gate, "gate", [&](auto t) {
    using T = decltype(t);
    const GatedBackward<T, Activation> kernel{read<T>(d),          g.data<T>(), u.data<T>(), written<T>(grad_gate),
                                              written<T>(grad_up), g.stride(),  u.stride(),  rows_of(gate),
                                              columns_of(gate)};
    launch(gate, kernel, Work::of_tiles(rows_of(gate), columns_of(gate), kTileOf<T>));
  });
  return {grad_gate, grad_up};
}

template <typename Activation>
Tensor biased(const Arguments& arguments, const Tensor& x, const Tensor& bias) {
  const Tensor from = contiguous_of(x);
  const Tensor b = contiguous_of(bias);
  Tensor y = empty_of(from);
  arguments.with_floating(x, "x", [&](auto t) {
    using T = decltype(t);
    const BiasedForward<T, Activation> kernel{read<T>(from), read<T>(b), written<T>(y), rows_of(x), columns_of(x)};
    launch(from, kernel, Work::of_tiles(rows_of(x), columns_of(x), kTileOf<T>));
  });
  return y;
}

template <typename Activation>
std::tuple<Tensor, Tensor> biased_backward(const Arguments& arguments, const Tensor& grad, const Tensor& x,
                                           const Tensor& bias) {
  const Tensor d = contiguous_of(grad);
  const Tensor from = contiguous_of(x);
  const Tensor b = contiguous_of(bias);
  const Work work = Work::of_totals(rows_of(x), columns_of(x));
  const std::int64_t groups = groups_with_partials(place_of(from), work);
  Tensor grad_x = empty_of(from);
  Tensor grad_bias = empty_of(b);
  Tensor partials = empty_of(from, {groups, work.columns}, compute_dtype(x));
  arguments.with_floating(x, "x", [&](auto t) {
    using T = decltype(t);
    const BiasedBackward<T, Activation> kernel{
        read<T>(d), read<T>(from), read<T>(b), written<T>(grad_x), written<Compute<T>>(partials),
        work.rows,  work.columns};
    launch(from, kernel, work, groups);
    const ColumnSum<T> sum{read<Compute<T>>(partials), written<T>(grad_bias), groups, work.columns, work.columns};
    launch(from, sum, Work::of_column_sums(groups, work.columns));
  });
  return {grad_x, grad_bias};
}

Tensor swiglu(Tensor gate, Tensor up) { return gated<Silu>({"swiglu"}, gate, up); }

std::tuple<Tensor, Tensor> swiglu_backward(Tensor grad, Tensor gate, Tensor up) {
  return gated_backward<Silu>({"swiglu_backward"}, grad, gate, up);
}

Tensor geglu(Tensor gate, Tensor up, bool tanh) {
  return tanh ? gated<GeluTanh>({"geglu"}, gate, up) : gated<Gelu>({"geglu"}, gate, up);
}

std::tuple<Tensor, Tensor> geglu_backward(Tensor grad, Tensor gate, Tensor up, bool tanh) {
  const Arguments arguments{"geglu_backward"};
  return tanh ? gated_backward<GeluTanh>(arguments, grad, gate, up) : gated_backward<Gelu>(arguments, grad, gate, up);
}

void check_biased(const Arguments& arguments, const Tensor& x, const Tensor& bias) {
  arguments.at_least_dimensions(x, "x", 1);
  arguments.shape(bias, "bias", {columns_of(x)}, x, "x");
  arguments.dtype(bias, "bias", x.scalar_type());
}

Tensor bias_gelu(Tensor x, Tensor bias, bool tanh) {
  const Arguments arguments{"bias_gelu"};
  check_biased(arguments, x, bias);
  return tanh ? biased<GeluTanh>(arguments, x, bias) : biased<Gelu>(arguments, x, bias);
}

std::tuple<Tensor, Tensor> bias_gelu_backward(Tensor grad, Tensor x, Tensor bias, bool tanh) {
  const Arguments arguments{"bias_gelu_backward"};
  check_biased(arguments, x, bias);
  arguments.alike(grad, "grad", x, "x");
  return tanh ? biased_backward<GeluTanh>(arguments, grad, x, bias) : biased_backward<Gelu>(arguments, grad, x, bias);
}

constexpr Registration kOps[] = {
    ANYACCEL_OP(swiglu, "swiglu(Tensor gate, Tensor up) -> Tensor"),
    ANYACCEL_OP(swiglu_backward, "swiglu_backward(Tensor grad, Tensor gate, Tensor up) -> (Tensor, Tensor)"),
    ANYACCEL_OP(geglu, "geglu(Tensor gate, Tensor up, bool tanh) -> Tensor"),
    ANYACCEL_OP(geglu_backward, "geglu_backward(Tensor grad, Tensor gate, Tensor up, bool tanh) -> (Tensor, Tensor)"),
    ANYACCEL_OP(bias_gelu, "bias_gelu(Tensor x, Tensor bias, bool tanh) -> Tensor"),
    ANYACCEL_OP(bias_gelu_backward,
                "bias_gelu_backward(Tensor grad, Tensor x, Tensor bias, bool tanh) -> (Tensor, Tensor)"),
};

}  // namespace
}  // namespace anyaccel

ANYACCEL_REGISTER(anyaccel::kOps)
