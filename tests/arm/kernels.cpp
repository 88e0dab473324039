// Runs every CPU loop on fixed inputs and writes the results, as float32, to standard output: built for two
// architectures, the two outputs must agree (compare.py). No torch.

#include <cstdint>
#include <cstdio>
#include <vector>

#include "activations.h"
#include "adagrad.h"
#include "column_sum.h"
#include "cpu_group.h"
#include "lamb.h"
#include "layer_norm.h"
#include "lion.h"
#include "moe.h"
#include "multi_tensor.h"
#include "multi_tensor_adam.h"
#include "quantization.h"
#include "rms_norm.h"
#include "rotary_embedding.h"
#include "sgd.h"
#include "softmax.h"

namespace anyaccel {
namespace {

constexpr std::int64_t kRows = 7;
constexpr std::int64_t kColumns = 130;
constexpr std::int64_t kCount = kRows * kColumns;

// Numbers in [-2, 2), the same everywhere.
template <typename T>
std::vector<T> numbers(std::int64_t count, std::uint32_t seed) {
  std::vector<T> found(count);
  for (T& value : found) {
    seed = seed * 1664525u + 1013904223u;
    store(static_cast<float>(static_cast<std::int32_t>(seed) >> 8) / 4194304.0f, value);
  }
  return found;
}

template <typename T>
void write(const std::vector<T>& values) {
  for (const T& value : values) {
    const float wide = static_cast<float>(to_float(value));
    std::fwrite(&wide, sizeof(wide), 1, stdout);
  }
}

template <typename T>
void write_integers(const std::vector<T>& values) {
  for (const T& value : values) {
    const float wide = static_cast<float>(value);
    std::fwrite(&wide, sizeof(wide), 1, stdout);
  }
}

template <typename Kernel>
void run(const Kernel& kernel, std::int64_t units) {
  kernel(CpuGroup{0, units, 0, 1});
}

template <typename T>
void norms() {
  const auto x = numbers<T>(kCount, 1);
  const auto grad = numbers<T>(kCount, 2);
  const auto residual = numbers<T>(kCount, 3);
  const auto weight = numbers<T>(kColumns, 4);
  const auto bias = numbers<T>(kColumns, 5);
  std::vector<T> sum(kCount), y(kCount), out(kCount);
  std::vector<float> statistics(kRows), mean(kRows), partials(2 * kColumns);
  run(RmsNormForward<T, T>{x.data(), residual.data(), weight.data(), sum.data(), y.data(), statistics.data(), kRows,
                           kColumns, 1e-5f},
      kRows);
  write(y);
  run(RmsNormBackward<T, T>{grad.data(), sum.data(), residual.data(), weight.data(), statistics.data(), out.data(),
                            partials.data(), kRows, kColumns},
      kRows);
  write(out);
  std::vector<T> summed(kColumns);
  run(ColumnSum<T>{partials.data(), summed.data(), 1, kColumns, kColumns}, kColumns);
  write(summed);
  run(LayerNormForward<T, T>{x.data(), nullptr, weight.data(), bias.data(), nullptr, y.data(), mean.data(),
                             statistics.data(), kRows, kColumns, 1e-5f},
      kRows);
  write(y);
  run(LayerNormBackward<T, T>{grad.data(), x.data(), nullptr, weight.data(), mean.data(), statistics.data(), out.data(),
                              partials.data(), kRows, kColumns},
      kRows);
  write(out);
  write(partials);
}

template <typename T>
void softmax_and_activations() {
  const auto x = numbers<T>(kCount, 6);
  const auto other = numbers<T>(kCount, 7);
  const auto grad = numbers<T>(kCount, 8);
  std::vector<T> y(kCount), first(kCount), second(kCount);
  std::vector<std::uint8_t> mask(kCount);
  for (std::int64_t i = 0; i < kCount; ++i) {
    mask[i] = i % 3 == 0;
  }
  SoftmaxMask hidden{mask.data(), {0, 0, kColumns, 1}, 1, kRows, false};
  run(SoftmaxForward<T>{x.data(), y.data(), hidden, kRows, kColumns, 0.7f}, kRows);
  write(y);
  hidden.mask = nullptr;
  hidden.is_causal = true;
  run(SoftmaxForward<T>{x.data(), y.data(), hidden, kRows, kColumns, 0.7f}, kRows);
  write(y);
  run(SoftmaxBackward<T>{grad.data(), y.data(), first.data(), kRows, kColumns, 0.7f}, kRows);
  write(first);
  const auto gated = [&](auto activation) {
    using Activation = decltype(activation);
    run(GatedForward<T, Activation>{x.data(), other.data(), y.data(), kColumns, kColumns, kRows, kColumns}, kRows);
    write(y);
    run(GatedBackward<T, Activation>{grad.data(), x.data(), other.data(), first.data(), second.data(), kColumns,
                                     kColumns, kRows, kColumns},
        kRows);
    write(first);
    write(second);
    std::vector<float> partials(kColumns);
    run(BiasedForward<T, Activation>{x.data(), other.data(), y.data(), kRows, kColumns}, kRows);
    write(y);
    run(BiasedBackward<T, Activation>{grad.data(), x.data(), other.data(), first.data(), partials.data(), kRows,
                                      kColumns},
        kRows);
    write(first);
    write(partials);
  };
  gated(Silu{});
  gated(Gelu{});
  gated(GeluTanh{});
}

template <typename T>
void rotary_and_quantization() {
  const auto x = numbers<T>(kCount, 9);
  const auto cosine = numbers<float>(kRows * 64, 10);
  const auto sine = numbers<float>(kRows * 64, 11);
  std::vector<T> y(kCount);
  const auto turn = [&](auto kernel) {
    kernel = {x.data(),
              y.data(),
              cosine.data(),
              sine.data(),
              {kCount, kColumns, kColumns},
              {kCount, kColumns, kColumns},
              1,
              kRows,
              1,
              kColumns,
              64,
              1.0f};
    run(kernel, kRows);
    write(y);
  };
  turn(RotaryEmbedding<T, false>{});
  turn(RotaryEmbedding<T, true>{});
  std::vector<std::int8_t> q(kCount);
  std::vector<std::uint8_t> bytes(kCount);
  std::vector<float> params(2 * kRows);
  for (const bool symmetric : {true, false}) {
    run(Quantize<T, 8>{x.data(), q.data(), params.data(), kRows, kColumns, symmetric}, kRows);
    write_integers(q);
    run(Dequantize<T, 8>{q.data(), params.data(), y.data(), kRows, kColumns, symmetric}, kRows);
    write(y);
    run(Quantize<T, 4>{x.data(), q.data(), params.data(), kRows, kColumns, symmetric}, kRows);
    run(Dequantize<T, 4>{q.data(), params.data(), y.data(), kRows, kColumns, symmetric}, kRows);
    write(y);
  }
  const auto float8 = [&](auto format) {
    using Format = decltype(format);
    run(QuantizeFloat8<T, Format>{x.data(), bytes.data(), params.data(), kRows, kColumns}, kRows);
    write_integers(bytes);
    run(DequantizeFloat8<T, Format>{bytes.data(), params.data(), y.data(), kRows, kColumns}, kRows);
    write(y);
  };
  float8(E4M3{});
  float8(E5M2{});
}

template <typename T>
void moe() {
  const auto logits = numbers<T>(kCount, 12);
  std::vector<float> probabilities(kCount), weights(2 * kRows), grad_weights(2 * kRows, 0.5f), grad_all(kCount, 0.25f);
  std::vector<std::int64_t> taken(2 * kRows), places = {3, 1, 0, 2, 6, 4, 5, 3, 2, 1, 0, 6, 4, 5};
  std::vector<T> y(kCount);
  run(TopkGating<T>{logits.data(), probabilities.data(), weights.data(), taken.data(), kRows, kColumns, 2, true},
      kRows);
  write_integers(taken);
  write(weights);
  run(TopkGatingBackward<T>{grad_weights.data(), grad_all.data(), probabilities.data(), taken.data(), y.data(), kRows,
                            kColumns, 2, true},
      kRows);
  write(y);
  run(GatherRows<T>{logits.data(), places.data(), weights.data(), y.data(), kRows, kColumns, 2, kRows}, kRows);
  write(y);
  run(CombineRows<T>{logits.data(), places.data(), weights.data(), y.data(), kRows, kColumns, 2, kRows}, kRows);
  write(y);
  run(CombineWeightsBackward<T>{y.data(), logits.data(), places.data(), weights.data(), kRows, kColumns, 2, kRows},
      2 * kRows);
  write(weights);
}

template <int Roles>
TensorTable<Roles> table_of(void* const (&roles)[Roles]) {
  TensorTable<Roles> table{};
  table.add(kCount, roles);
  return table;
}

template <typename T>
void optimizers() {
  auto param = numbers<T>(kCount, 13);
  auto grad = numbers<T>(kCount, 14);
  auto first = numbers<float>(kCount, 15);
  auto second = numbers<float>(kCount, 16);
  for (float& value : second) {
    value *= value;
  }
  std::vector<float> update(kCount), norms(2), ratios(1), partials(2);
  const StepControl control{nullptr, nullptr};
  const AdamOptions options{0.01, 0.9, 0.99, 0.1, 1e-6, true, true, false};
  const auto four = table_of<4>({param.data(), grad.data(), first.data(), second.data()});
  run(AdamStep<T, T>{four, adam_coefficients(options, 3.0), control}, kCount);
  write(param);
  const auto three = table_of<3>({param.data(), grad.data(), first.data()});
  run(TensorStep<Lion, T, T>{three, LionCoefficients{0.01f, 0.9f, 0.99f, 0.1f, 0.01f, 0.999f, 1.0f, 0.0f}, control},
      kCount);
  write(param);
  run(TensorStep<Sgd, T, T>{three, SgdCoefficients{0.1f, 0.9f, 0.9f, 0.7f, 0.01f, 1.0f, true}, control}, kCount);
  write(param);
  const auto sums = table_of<3>({param.data(), grad.data(), second.data()});
  run(TensorStep<Adagrad, T, T>{sums, AdagradCoefficients{0.01f, 1e-6f, 0.1f, 1.0f}, control}, kCount);
  write(param);
  const LambCoefficients lamb{0.9f, 0.99f, 0.1f, 0.01f, 1e-6f, 0.1f, 0.01f, 0.01f, 10.0f, 1.0f, false};
  run(LambUpdate<T, T>{table_of<5>({param.data(), grad.data(), first.data(), second.data(), update.data()}), lamb,
                       control},
      kCount);
  run(SquaredSums<T>{table_of<1>({param.data()}), partials.data(), 1}, kCount);
  run(RootOfSums{partials.data(), norms.data(), nullptr, 1, 1}, 1);
  run(SquaredSums<float>{table_of<1>({update.data()}), partials.data(), 1}, kCount);
  run(RootOfSums{partials.data(), norms.data() + 1, nullptr, 1, 1}, 1);
  write(norms);
  run(LambApply<T>{table_of<2>({param.data(), update.data()}), norms.data(), norms.data() + 1, ratios.data(), lamb,
                   control},
      kCount);
  write(param);
  std::int32_t overflow = 0;
  run(ScaleTensors<T, float>{table_of<2>({grad.data(), update.data()}), 0.5f, nullptr, &overflow}, kCount);
  write(update);
  run(AddTensors<T>{table_of<3>({param.data(), grad.data(), param.data()}), 0.5f, 2.0f, &overflow}, kCount);
  write(param);
}

template <typename T>
void everything() {
  norms<T>();
  softmax_and_activations<T>();
  rotary_and_quantization<T>();
  moe<T>();
  optimizers<T>();
}

}  // namespace
}  // namespace anyaccel

int main() {
  anyaccel::everything<float>();
  anyaccel::everything<anyaccel::BFloat16>();
  anyaccel::everything<anyaccel::Half>();
}
