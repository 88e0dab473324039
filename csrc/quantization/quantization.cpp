// The op `quantization`: schemas, argument checks and launches, for every device.

#include "quantization.h"

#include <limits>
#include <optional>
#include <tuple>

#include "allocation.h"
#include "arguments.h"
#include "launch.h"
#include "register_ops.h"

namespace anyaccel {
namespace {

std::int64_t columns_in(const Arguments& arguments, const Tensor& x, std::int64_t groups, std::int64_t bits) {
  const std::int64_t numel = x.numel();
  if (groups < 1 || numel % groups != 0) {
    arguments.refuse("groups", std::to_string(groups) + " for " + std::to_string(numel) + " elements",
                     "a number that divides them evenly",
                     numel == 0 ? "pass 1" : "pass x.numel() // x.shape[-1], for one group per row");
  }
  if (bits != 8 && bits != 4) {
    arguments.refuse("bits", std::to_string(bits), "4 or 8", "pass bits=8 or bits=4");
  }
  if (bits == 4 && (numel / groups % 2 != 0 || x.dim() == 0 || columns_of(x) % 2 != 0)) {
    arguments.refuse("x", "of shape " + text_of(x) + " in " + std::to_string(groups) + " groups",
                     "an even last dimension and groups of even size, as two elements share a byte",
                     "pass torch.nn.functional.pad(x, (0, 1)), or bits=8");
  }
  return numel / groups;
}

// The elements of a row that a GPU's thread keeps in registers: with fewer, most instructions would be those of a row.
template <typename T>
constexpr std::int64_t kKeptElements = 4 * kTileOf<T>;

constexpr std::int64_t kMostBytes = std::numeric_limits<std::int64_t>::max() / 2;

std::vector<std::int64_t> sizes_with_last(const Tensor& tensor, std::int64_t numerator, std::int64_t denominator) {
  std::vector<std::int64_t> sizes(tensor.sizes().begin(), tensor.sizes().end());
  if (!sizes.empty()) {
    sizes.back() =
        numerator > denominator ? sizes.back() * (numerator / denominator) : sizes.back() / (denominator / numerator);
  }
  return sizes;
}

// A few large groups are split, so that the whole device works on them; their extremes are computed first, in `memory`,
// which must outlive the launches.
template <typename T>
Parts parts_with_extremes(const Tensor& from, std::int64_t groups, std::int64_t columns, Ranged ranged,
                          std::optional<Tensor>& memory) {
  constexpr std::int64_t kMultiple = 2 * kTileBytes;  // parts begin at tiles, also for two elements per byte
  const std::int64_t wanted = parts_of_a_row(units_at(place_of(from)), groups, columns);
  if (wanted == 1) {
    return {1, columns, nullptr};
  }
  const std::int64_t size = parts_of(parts_of(columns, wanted), kMultiple) * kMultiple;
  const std::int64_t count = parts_of(columns, size);
  memory = empty_of(from, {groups * (1 + count), 2}, ScalarType::Float);
  auto* of_groups = reinterpret_cast<Extremes*>(written<float>(*memory));
  Extremes* of_parts = of_groups + groups;
  const ExtremesOfParts<T> kernel{read<T>(from), of_parts, groups, columns, {count, size, nullptr}, ranged};
  launch(from, kernel, Work::of_tiles(groups * count, size, kKeptElements<T>));
  launch(from, ExtremesOfGroups{of_parts, of_groups, groups, count}, Work::of_rows(groups, count));
  return {count, size, of_groups};
}

std::tuple<Tensor, Tensor> quantize(Tensor x, std::int64_t groups, std::int64_t bits, bool symmetric) {
  const Arguments arguments{"quantize"};
  const std::int64_t columns = columns_in(arguments, x, groups, bits);
  const Tensor from = contiguous_of(x);
  Tensor q = empty_of(from, sizes_with_last(x, bits, 8), ScalarType::Char);
  Tensor params = empty_of(from, {groups, symmetric ? 1 : 2}, ScalarType::Float);
  arguments.with_float32_or_less(x.scalar_type(), "x", [&](auto t) {
    using T = decltype(t);
    std::optional<Tensor> extremes;
    const Ranged ranged = symmetric ? Ranged::kMagnitudesNan : Ranged::kBoth;
    const Parts parts = parts_with_extremes<T>(from, groups, columns, ranged, extremes);
    const auto run = [&](auto kernel) {
      kernel = {read<T>(from), written<std::int8_t>(q), written<float>(params), groups, columns, symmetric, parts};
      launch(from, kernel, Work::of_tiles(groups * parts.count, parts.size, kKeptElements<T>));
    };
    bits == 8 ? run(Quantize<T, 8>{}) : run(Quantize<T, 4>{});
  });
  return {q, params};
}

Tensor dequantize(Tensor q, Tensor params, std::int64_t groups, std::int64_t bits, bool symmetric, ScalarType dtype) {
  const Arguments arguments{"dequantize"};
  if (bits != 8 && bits != 4) {
    arguments.refuse("bits", std::to_string(bits), "4 or 8", "pass bits=8 or bits=4");
  }
  arguments.dtype(q, "q", ScalarType::Char);
  arguments.dtype(params, "params", ScalarType::Float);
  arguments.shape(params, "params", {groups, symmetric ? 1 : 2}, q, "q");
  if (bits == 4 && (q.dim() == 0 || q.numel() > kMostBytes || columns_of(q) > kMostBytes)) {
    arguments.refuse("q", "of shape " + text_of(q), "bytes of two elements each, in one dimension or more",
                     "pass the q that quantize returned");
  }
  const std::int64_t numel = q.numel() * (8 / bits);
  if (groups < 1 || numel % groups != 0 || (bits == 4 && numel / groups % 2 != 0)) {
    arguments.refuse("groups", std::to_string(groups) + " for " + std::to_string(numel) + " elements",
                     "a number that divides them evenly", "pass the number of groups that q was quantized with");
  }
  const Tensor from = contiguous_of(q);
  const Tensor p = contiguous_of(params);
  Tensor x = empty_of(from, sizes_with_last(q, 8, bits), dtype);
  arguments.with_float32_or_less(dtype, "dtype", [&](auto t) {
    using T = decltype(t);
    const auto run = [&](auto kernel) {
      kernel = {read<std::int8_t>(from), read<float>(p), written<T>(x), groups, numel / groups, symmetric};
      launch(from, kernel, Work::of_tiles(groups, numel / groups, kTileOf<T>));
    };
    bits == 8 ? run(Dequantize<T, 8>{}) : run(Dequantize<T, 4>{});
  });
  return x;
}

std::tuple<Tensor, Tensor> quantize_float8(Tensor x, std::int64_t groups, bool e5m2) {
  const Arguments arguments{"quantize_float8"};
  const std::int64_t columns = columns_in(arguments, x, groups, 8);
  const Tensor from = contiguous_of(x);
  Tensor q = empty_of(from, sizes_with_last(x, 1, 1), e5m2 ? ScalarType::Float8_e5m2 : ScalarType::Float8_e4m3fn);
  Tensor scales = empty_of(from, {groups}, ScalarType::Float);
  arguments.with_float32_or_less(x.scalar_type(), "x", [&](auto t) {
    using T = decltype(t);
    std::optional<Tensor> extremes;
    const Parts parts = parts_with_extremes<T>(from, groups, columns, Ranged::kMagnitudes, extremes);
    const auto run = [&](auto kernel) {
      kernel = {read<T>(from), written<std::uint8_t>(q), written<float>(scales), groups, columns, parts};
      launch(from, kernel, Work::of_tiles(groups * parts.count, parts.size, kKeptElements<T>));
    };
    e5m2 ? run(QuantizeFloat8<T, E5M2>{}) : run(QuantizeFloat8<T, E4M3>{});
  });
  return {q, scales};
}

Tensor dequantize_float8(Tensor q, Tensor scales, ScalarType dtype) {
  const Arguments arguments{"dequantize_float8"};
  const bool e5m2 = q.scalar_type() == ScalarType::Float8_e5m2;
  if (!e5m2) {
    arguments.dtype(q, "q", ScalarType::Float8_e4m3fn);
  }
  arguments.dtype(scales, "scales", ScalarType::Float);
  arguments.same_device(scales, "scales", q, "q");
  const std::int64_t groups = scales.numel();
  if (scales.dim() != 1 || groups < 1 || q.numel() % groups != 0) {
    arguments.refuse("scales", "of shape " + text_of(scales) + " for " + std::to_string(q.numel()) + " elements",
                     "one per group of equal size", "pass the scales that quantize_float8 returned");
  }
  const Tensor from = contiguous_of(q);
  const Tensor s = contiguous_of(scales);
  const std::int64_t columns = q.numel() / groups;
  Tensor x = empty_of(from, sizes_with_last(q, 1, 1), dtype);
  arguments.with_float32_or_less(dtype, "dtype", [&](auto t) {
    using T = decltype(t);
    const auto run = [&](auto kernel) {
      kernel = {read<std::uint8_t>(from), read<float>(s), written<T>(x), groups, columns};
      launch(from, kernel, Work::of_tiles(groups, columns, kTileOf<T>));
    };
    e5m2 ? run(DequantizeFloat8<T, E5M2>{}) : run(DequantizeFloat8<T, E4M3>{});
  });
  return x;
}

constexpr Registration kOps[] = {
    ANYACCEL_OP(quantize, "quantize(Tensor x, int groups, int bits, bool symmetric) -> (Tensor, Tensor)"),
    ANYACCEL_OP(dequantize,
                "dequantize(Tensor q, Tensor params, int groups, int bits, bool symmetric, ScalarType dtype) -> "
                "Tensor"),
    ANYACCEL_OP(quantize_float8, "quantize_float8(Tensor x, int groups, bool e5m2) -> (Tensor, Tensor)"),
    ANYACCEL_OP(dequantize_float8, "dequantize_float8(Tensor q, Tensor scales, ScalarType dtype) -> Tensor"),
};

}  // namespace
}  // namespace anyaccel

ANYACCEL_REGISTER(anyaccel::kOps)
