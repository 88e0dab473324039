// The op `moe`: schemas, argument checks and launches, for every device.

#include "moe.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

#include "allocation.h"
#include "launch.h"
#include "norm_arguments.h"
#include "register_ops.h"

namespace anyaccel {
namespace {

constexpr std::int64_t kMostChoices = std::numeric_limits<std::int32_t>::max();

// Rejects indices out of range on the CPU. Elsewhere, reading them would wait for the device, and the kernels skip
// those out of range.
void check_range(const Arguments& arguments, const Tensor& contiguous_index, const char* name, std::int64_t count) {
  if (!contiguous_index.is_cpu()) {
    return;
  }
  const std::int64_t* const begin = read<std::int64_t>(contiguous_index);
  const std::int64_t* const end = begin + contiguous_index.numel();
  const std::int64_t* const wrong =
      std::find_if(begin, end, [=](std::int64_t index) { return !is_within(index, count); });
  if (wrong != end) {
    arguments.refuse(name, "with the index " + std::to_string(*wrong), "0 to " + std::to_string(count - 1),
                     "pass the indices from route() for this tensor");
  }
}

std::tuple<Tensor, Tensor, Tensor> topk_gating(Tensor logits, std::int64_t k, bool normalise) {
  const Arguments arguments{"topk_gating"};
  if (logits.dim() != 2) {
    arguments.refuse("logits", "of shape " + text_of(logits), "(tokens, experts)",
                     "pass logits.reshape(-1, logits.shape[-1])");
  }
  const std::int64_t experts = logits.size(1);
  if (experts > kMostExperts) {
    arguments.refuse("logits", "of " + std::to_string(experts) + " experts", "at most " + std::to_string(kMostExperts),
                     "split the experts into groups and choose among the best of each");
  }
  if (k < 1 || k > experts || k > kMostExpertsAToken) {
    arguments.refuse("k", std::to_string(k) + " of " + std::to_string(experts) + " experts",
                     "1 to " + std::to_string(std::min<std::int64_t>(experts, kMostExpertsAToken)),
                     "pass a k in this range");
  }
  const Tensor from = contiguous_of(logits);
  const std::int64_t tokens = logits.size(0);
  Tensor probabilities = empty_of(from, {tokens, experts}, compute_dtype(logits));
  Tensor weights = empty_of(from, {tokens, k}, compute_dtype(logits));
  Tensor taken = empty_of(from, {tokens, k}, ScalarType::Long);
  arguments.with_floating(logits, "logits", [&](auto t) {
    using T = decltype(t);
    const TopkGating<T> kernel{read<T>(from),
                               written<Compute<T>>(probabilities),
                               written<Compute<T>>(weights),
                               written<std::int64_t>(taken),
                               tokens,
                               experts,
                               static_cast<std::int32_t>(k),
                               normalise};
    launch(from, kernel, Work::of_rows(tokens, experts));
  });
  return {weights, taken, probabilities};
}

Tensor topk_gating_backward(Tensor grad_weights, Tensor grad_probabilities, Tensor probabilities, Tensor taken,
                            bool normalise, ScalarType dtype) {
  const Arguments arguments{"topk_gating_backward"};
  if (taken.dim() != 2 || probabilities.dim() != 2 || taken.size(1) > kMostExpertsAToken) {
    arguments.refuse("taken", "of shape " + text_of(taken) + " and probabilities of shape " + text_of(probabilities),
                     "(tokens, k) with k up to " + std::to_string(kMostExpertsAToken) + " and (tokens, experts)",
                     "pass what topk_gating() returned");
  }
  arguments.dtype(taken, "taken", ScalarType::Long);
  arguments.shape(probabilities, "probabilities", {taken.size(0), probabilities.size(1)}, taken, "taken");
  arguments.alike(grad_probabilities, "grad_probabilities", probabilities, "probabilities");
  arguments.same_shape(grad_weights, "grad_weights", taken, "taken");
  arguments.dtype(grad_weights, "grad_weights", probabilities.scalar_type());
  const Tensor of_weights = contiguous_of(grad_weights);
  const Tensor of_probabilities = contiguous_of(grad_probabilities);
  const Tensor p = contiguous_of(probabilities);
  const Tensor chosen = contiguous_of(taken);
  check_range(arguments, chosen, "taken", p.size(1));
  Tensor grad_logits = empty_of(p, {p.size(0), p.size(1)}, dtype);
  arguments.with_floating(grad_logits, "dtype", [&](auto t) {
    using T = decltype(t);
    arguments.dtype(p, "probabilities", compute_dtype(grad_logits));
    const TopkGatingBackward<T> kernel{read<Compute<T>>(of_weights),
                                       read<Compute<T>>(of_probabilities),
                                       read<Compute<T>>(p),
                                       read<std::int64_t>(chosen),
                                       written<T>(grad_logits),
                                       p.size(0),
                                       p.size(1),
                                       static_cast<std::int32_t>(chosen.size(1)),
                                       normalise};
    launch(p, kernel, Work::of_rows(p.size(0), p.size(1)));
  });
  return grad_logits;
}

void check_rows(const Arguments& arguments, const Tensor& x) {
  if (x.dim() != 2) {
    arguments.refuse("x", "of shape " + text_of(x), "(rows, columns)", "pass x.reshape(-1, x.shape[-1])");
  }
}

void check_index(const Arguments& arguments, const Tensor& index, const char* name, const Tensor& x) {
  arguments.same_device(index, name, x, "x");
  arguments.dtype(index, name, ScalarType::Long);
}

void check_places(const Arguments& arguments, const Tensor& places, const Tensor& x) {
  check_index(arguments, places, "places", x);
  if (places.dim() != 2 || places.size(1) > kMostChoices) {
    arguments.refuse("places", "of shape " + text_of(places), "(tokens, k)", "pass the places that route() returned");
  }
}

Tensor gather_rows(Tensor x, Tensor source, std::optional<Tensor> weights, std::int64_t divisor) {
  const Arguments arguments{"gather_rows"};
  check_rows(arguments, x);
  check_index(arguments, source, "source", x);
  if (divisor < 1) {
    arguments.refuse("divisor", std::to_string(divisor), "1 or more", "pass the number of choices per token");
  }
  if (weights.has_value()) {
    arguments.shape(*weights, "weights", {source.numel()}, source, "source");
    arguments.dtype(*weights, "weights", compute_dtype(x));
  }
  const Tensor from = contiguous_of(x);
  const Tensor index = contiguous_of(source);
  const Optional factors(weights);
  const bool fits = x.size(0) <= std::numeric_limits<std::int64_t>::max() / divisor;
  const std::int64_t entries = fits ? x.size(0) * divisor : std::numeric_limits<std::int64_t>::max();
  check_range(arguments, index, "source", weights.has_value() ? std::min(entries, source.numel()) : entries);
  Tensor y = empty_of(from, {source.numel(), x.size(1)});
  arguments.with_floating(x, "x", [&](auto t) {
    using T = decltype(t);
    const GatherRows<T> kernel{read<T>(from),
                               read<std::int64_t>(index),
                               factors.data<Compute<T>>(),
                               written<T>(y),
                               source.numel(),
                               x.size(1),
                               divisor,
                               x.size(0)};
    launch(from, kernel, Work::of_tiles(source.numel(), x.size(1), kTileOf<T>));
  });
  return y;
}

Tensor combine_rows(Tensor x, Tensor places, std::optional<Tensor> weights) {
  const Arguments arguments{"combine_rows"};
  check_rows(arguments, x);
  check_places(arguments, places, x);
  if (weights.has_value()) {
    arguments.same_device(*weights, "weights", x, "x");
    arguments.same_shape(*weights, "weights", places, "places");
    arguments.dtype(*weights, "weights", compute_dtype(x));
  }
  const Tensor from = contiguous_of(x);
  const Tensor index = contiguous_of(places);
  const Optional factors(weights);
  check_range(arguments, index, "places", x.size(0));
  Tensor y = empty_of(from, {places.size(0), x.size(1)});
  if (x.size(0) == 0) {  // there is no row that an index could name
    torch::stable::zero_(y);
    return y;
  }
  arguments.with_floating(x, "x", [&](auto t) {
    using T = decltype(t);
    const CombineRows<T> kernel{read<T>(from),
                                read<std::int64_t>(index),
                                factors.data<Compute<T>>(),
                                written<T>(y),
                                places.size(0),
                                x.size(1),
                                static_cast<std::int32_t>(places.size(1)),
                                x.size(0)};
    launch(from, kernel, Work::of_tiles(places.size(0), x.size(1), kTileOf<T>));
  });
  return y;
}

Tensor combine_weights_backward(Tensor grad, Tensor x, Tensor places) {
  const Arguments arguments{"combine_weights_backward"};
  check_rows(arguments, x);
  check_places(arguments, places, x);
  arguments.shape(grad, "grad", {places.size(0), x.size(1)}, x, "x");
  arguments.dtype(grad, "grad", x.scalar_type());
  const Tensor g = contiguous_of(grad);
  const Tensor from = contiguous_of(x);
  const Tensor index = contiguous_of(places);
  check_range(arguments, index, "places", x.size(0));
  Tensor grad_weights = empty_of(from, {places.size(0), places.size(1)}, compute_dtype(x));
  arguments.with_floating(x, "x", [&](auto t) {
    using T = decltype(t);
    const CombineWeightsBackward<T> kernel{read<T>(g),
                                           read<T>(from),
                                           read<std::int64_t>(index),
                                           written<Compute<T>>(grad_weights),
                                           places.size(0),
                                           x.size(1),
                                           static_cast<std::int32_t>(places.size(1)),
                                           x.size(0)};
    launch(from, kernel, Work::of_tiles(places.numel(), x.size(1), kTileOf<T>));
  });
  return grad_weights;
}

// The gradient needs `places`, the inverse of `source`.
Tensor moe_dispatch(Tensor x, Tensor source, Tensor places) {
  const Arguments arguments{"dispatch"};
  check_rows(arguments, x);
  check_index(arguments, places, "places", x);
  if (places.dim() != 2 || places.numel() != source.numel() || places.size(1) == 0 || places.size(0) != x.size(0)) {
    arguments.refuse("places", "of shape " + text_of(places), "(tokens, k), for the tokens of x",
                     "pass the places that route() returned for them");
  }
  return gather_rows(x, source, std::nullopt, places.size(1));
}

Tensor moe_combine(Tensor rows, Tensor weights, Tensor source, Tensor places) {
  const Arguments arguments{"combine"};
  check_rows(arguments, rows);
  check_index(arguments, source, "source", rows);
  if (source.numel() != places.numel() || source.numel() != rows.size(0)) {
    arguments.refuse("rows", "of shape " + text_of(rows),
                     text_of(std::vector<std::int64_t>{places.numel(), rows.size(1)}) + ", one row per choice",
                     "pass the rows in expert order");
  }
  return combine_rows(rows, places, weights);
}

constexpr Registration kOps[] = {
    ANYACCEL_OP(moe_dispatch, "moe_dispatch(Tensor x, Tensor source, Tensor places) -> Tensor"),
    ANYACCEL_OP(moe_combine, "moe_combine(Tensor rows, Tensor weights, Tensor source, Tensor places) -> Tensor"),
    ANYACCEL_OP(topk_gating, "topk_gating(Tensor logits, int k, bool normalise) -> (Tensor, Tensor, Tensor)"),
    ANYACCEL_OP(topk_gating_backward,
                "topk_gating_backward(Tensor grad_weights, Tensor grad_probabilities, Tensor probabilities, "
                "Tensor taken, bool normalise, ScalarType dtype) -> Tensor"),
    ANYACCEL_OP(gather_rows, "gather_rows(Tensor x, Tensor source, Tensor? weights, int divisor) -> Tensor"),
    ANYACCEL_OP(combine_rows, "combine_rows(Tensor x, Tensor places, Tensor? weights) -> Tensor"),
    ANYACCEL_OP(combine_weights_backward, "combine_weights_backward(Tensor grad, Tensor x, Tensor places) -> Tensor"),
};

}  // namespace
}  // namespace anyaccel

ANYACCEL_REGISTER(anyaccel::kOps)
