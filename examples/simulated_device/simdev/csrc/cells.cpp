// The cells of LSTM and GRU: for a PrivateUse1 device, as for CUDA, torch calls a fused kernel that the host does not
// have. They are composed here from differentiable ops, and registered for autograd.

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

namespace simdev {
namespace {

using at::Tensor;

Tensor with_bias(const Tensor& gates, const std::optional<Tensor>& bias) {
  return bias && bias->defined() ? gates.add(*bias) : gates;
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& of_input, const Tensor& of_hidden, const Tensor& cell,
                                             const std::optional<Tensor>& input_bias,
                                             const std::optional<Tensor>& hidden_bias) {
  const auto gates = with_bias(of_input, input_bias).add(with_bias(of_hidden, hidden_bias));
  const auto parts = gates.chunk(4, 1);  // input, forget, cell, output
  const auto new_cell = parts[1].sigmoid().mul(cell).add(parts[0].sigmoid().mul(parts[2].tanh()));
  return {parts[3].sigmoid().mul(new_cell.tanh()), new_cell, gates};
}

std::tuple<Tensor, Tensor> gru_cell(const Tensor& of_input, const Tensor& of_hidden, const Tensor& hidden,
                                    const std::optional<Tensor>& input_bias, const std::optional<Tensor>& hidden_bias) {
  const auto from_input = with_bias(of_input, input_bias).chunk(3, 1);  // reset, update, new
  const auto from_hidden = with_bias(of_hidden, hidden_bias).chunk(3, 1);
  const auto reset = from_input[0].add(from_hidden[0]).sigmoid();
  const auto update = from_input[1].add(from_hidden[1]).sigmoid();
  const auto made = from_input[2].add(reset.mul(from_hidden[2])).tanh();
  return {hidden.sub(made).mul(update).add(made), reset};
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) {
  library.impl("_thnn_fused_lstm_cell", &lstm_cell);
  library.impl("_thnn_fused_gru_cell", &gru_cell);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_thnn_fused_lstm_cell", &lstm_cell);
  library.impl("_thnn_fused_gru_cell", &gru_cell);
}

}  // namespace
}  // namespace simdev
