// The op `multi_tensor`: schemas, argument checks and launches, for every device.

#include "multi_tensor.h"

#include <tuple>

#include "allocation.h"
#include "optimizers.h"
#include "register_ops.h"
#include "tensor_norms.h"

namespace anyaccel {
namespace {

std::int32_t* overflow_of(const Arguments& arguments, const std::optional<Tensor>& flag, const Tensor& as) {
  if (!flag.has_value()) {
    return nullptr;
  }
  arguments.same_device(*flag, "noop_flag", as, "the tensors");
  arguments.dtype(*flag, "noop_flag", ScalarType::Int);
  arguments.one_number(*flag, "noop_flag");
  return written<std::int32_t>(*flag);
}

std::int64_t largest(const std::vector<Tensor>& tensors) {
  std::int64_t elements = 0;
  for (const Tensor& tensor : tensors) {
    elements = std::max<std::int64_t>(elements, tensor.numel());
  }
  return elements;
}

void require_some(const Arguments& arguments, const std::vector<Tensor>& tensors) {
  if (tensors.empty()) {
    arguments.refuse("tensors", "none", "one or more", "pass at least one tensor");
  }
}

std::tuple<Tensor, Tensor> l2norm(std::vector<Tensor> tensors) {
  const Arguments arguments{"multi_tensor_l2norm"};
  require_some(arguments, tensors);
  const auto count = static_cast<std::int64_t>(tensors.size());
  const TensorLists<1> lists(arguments, {{{"tensors", false, false}}}, {std::move(tensors)});
  const Tensor& like = lists.tensor(0, 0);
  Tensor norms = empty_of(like, {count}, ScalarType::Float);
  Tensor total = empty_of(like, {1}, ScalarType::Float);
  launch_norms(lists, 0, norms, &total);
  return {total, norms};
}

void scale(std::vector<Tensor> inputs, std::vector<Tensor> outputs, double factor, std::optional<Tensor> device_factor,
           std::optional<Tensor> noop_flag) {
  const Arguments arguments{"multi_tensor_scale"};
  require_some(arguments, inputs);
  std::int32_t* const overflow = overflow_of(arguments, noop_flag, inputs[0]);
  const float* by = nullptr;
  if (device_factor.has_value()) {
    arguments.same_device(*device_factor, "factor", inputs[0], "the tensors");
    arguments.dtype(*device_factor, "factor", ScalarType::Float);
    arguments.one_number(*device_factor, "factor");
    by = read<float>(*device_factor);
  }
  const std::int64_t elements = largest(inputs);
  TensorLists<2> lists(arguments, {{{"inputs", false, false}, {"outputs", true, false}}},
                       {std::move(inputs), std::move(outputs)});
  const std::int64_t groups = groups_for_shares(place_of(lists.tensor(0, 0)), elements);
  lists.each_launch([&](auto in, auto out, const TensorTable<2>& table, std::size_t index) {
    const ScaleTensors<decltype(in), decltype(out)> kernel{table, static_cast<float>(factor), by, overflow};
    launch(lists.tensor(index, 0), kernel, work_of(table), groups);
  });
  lists.finish();
}

void axpby(std::vector<Tensor> x, std::vector<Tensor> y, std::vector<Tensor> outputs, double a, double b,
           std::optional<Tensor> noop_flag) {
  const Arguments arguments{"multi_tensor_axpby"};
  require_some(arguments, x);
  std::int32_t* const overflow = overflow_of(arguments, noop_flag, x[0]);
  for (std::size_t i = 0; i < x.size() && i < y.size() && i < outputs.size(); ++i) {
    arguments.dtype(y[i], "y", x[i].scalar_type());
    arguments.dtype(outputs[i], "outputs", x[i].scalar_type());
  }
  const std::int64_t elements = largest(x);
  TensorLists<3> lists(arguments, {{{"x", false, false}, {"y", false, false}, {"outputs", true, false}}},
                       {std::move(x), std::move(y), std::move(outputs)});
  const std::int64_t groups = groups_for_shares(place_of(lists.tensor(0, 0)), elements);
  lists.each_launch([&](auto type, auto, const TensorTable<3>& table, std::size_t index) {
    const AddTensors<decltype(type)> kernel{table, static_cast<float>(a), static_cast<float>(b), overflow};
    launch(lists.tensor(index, 0), kernel, work_of(table), groups);
  });
  lists.finish();
}

constexpr Registration kOps[] = {
    ANYACCEL_OP(l2norm, "multi_tensor_l2norm(Tensor[] tensors) -> (Tensor, Tensor)"),
    ANYACCEL_OP(scale,
                "multi_tensor_scale(Tensor[] inputs, Tensor(a!)[] outputs, float factor, Tensor? device_factor, "
                "Tensor(b!)? noop_flag) -> ()"),
    ANYACCEL_OP(axpby,
                "multi_tensor_axpby(Tensor[] x, Tensor[] y, Tensor(a!)[] outputs, float a, float b, "
                "Tensor(b!)? noop_flag) -> ()"),
};

}  // namespace
}  // namespace anyaccel

ANYACCEL_REGISTER(anyaccel::kOps)
