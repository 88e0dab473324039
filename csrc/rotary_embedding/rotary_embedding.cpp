// The op `rotary_embedding`: schemas, argument checks and launches, for every device.

#include "rotary_embedding.h"

#include "allocation.h"
#include "arguments.h"
#include "launch.h"
#include "register_ops.h"

namespace anyaccel {
namespace {

void check(const Arguments& arguments, const Tensor& x, const Tensor& cosine, const Tensor& sine) {
  if (x.dim() != 4) {
    arguments.refuse("x", "of shape " + text_of(x), "(batch, positions, heads, head_dim)",
                     "split the heads with x.unflatten(-1, (heads, head_dim)), or add a batch with x.unsqueeze(0)");
  }
  if (cosine.dim() != 2 || cosine.size(0) != x.size(1) || cosine.size(1) > x.size(3) / 2) {
    arguments.refuse("cos", "of shape " + text_of(cosine),
                     "(" + std::to_string(x.size(1)) + ", pairs), with 2 * pairs at most x's " +
                         std::to_string(x.size(3)) + " columns",
                     "pass one row per position");
  }
  arguments.same_device(cosine, "cos", x, "x");
  arguments.dtype(cosine, "cos", compute_dtype(x));
  arguments.alike(sine, "sin", cosine, "cos");
}

void turn(const Arguments& arguments, const Tensor& x, const Tensor& y, const Tensor& cosine, const Tensor& sine,
          bool interleaved, bool inverse) {
  const Tensor c = contiguous_of(cosine);
  const Tensor s = contiguous_of(sine);
  const std::int64_t positions = x.size(0) * x.size(1);
  const std::int64_t heads = heads_of_a_group(units_at(place_of(x)), positions, x.size(2), x.size(3));
  const std::int64_t parts = parts_of(x.size(2), heads);
  arguments.with_floating(x, "x", [&](auto t) {
    using T = decltype(t);
    const auto run = [&](auto kernel) {
      kernel = {read<T>(x),
                written<T>(y),
                read<Compute<T>>(c),
                read<Compute<T>>(s),
                {x.stride(0), x.stride(1), x.stride(2)},
                {y.stride(0), y.stride(1), y.stride(2)},
                x.size(0),
                x.size(1),
                x.size(2),
                heads,
                parts,
                x.size(3),
                cosine.size(1),
                inverse ? Compute<T>(-1) : Compute<T>(1)};
      launch(x, kernel, Work::of_tiles(positions * parts, heads * x.size(3), 2 * kTileOf<T>));
    };
    interleaved ? run(RotaryEmbedding<T, true>{}) : run(RotaryEmbedding<T, false>{});
  });
}

Tensor rotary_embedding(Tensor x, Tensor cosine, Tensor sine, bool interleaved, bool inverse) {
  const Arguments arguments{"rotary_embedding"};
  check(arguments, x, cosine, sine);
  const Tensor from = x.stride(3) == 1 ? x : contiguous_of(x);
  Tensor y = empty_of(x, {x.size(0), x.size(1), x.size(2), x.size(3)});
  turn(arguments, from, y, cosine, sine, interleaved, inverse);
  return y;
}

void rotary_embedding_in_place(Tensor x, Tensor cosine, Tensor sine, bool interleaved, bool inverse) {
  const Arguments arguments{"rotary_embedding_"};
  check(arguments, x, cosine, sine);
  if (x.stride(3) == 1 || x.size(3) == 1) {
    turn(arguments, x, x, cosine, sine, interleaved, inverse);
    return;
  }
  const NoGradient scope;
  const Tensor copy = contiguous_of(x);
  turn(arguments, copy, copy, cosine, sine, interleaved, inverse);
  torch::stable::copy_(x, copy);
}

constexpr Registration kOps[] = {
    ANYACCEL_OP(rotary_embedding,
                "rotary_embedding(Tensor x, Tensor cos, Tensor sin, bool interleaved, bool inverse) -> Tensor"),
    ANYACCEL_OP(rotary_embedding_in_place,
                "rotary_embedding_(Tensor(a!) x, Tensor cos, Tensor sin, bool interleaved, bool inverse) -> ()"),
};

}  // namespace
}  // namespace anyaccel

ANYACCEL_REGISTER(anyaccel::kOps)
