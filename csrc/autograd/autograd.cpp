// Records gradients in C++: an op whose gradients are one call of another op gets a second name,
// `<namespace>_autograd::<op>`, which calls the op below autograd and adds a node to the graph. In Python, an
// autograd.Function costs about 5 µs more.
//
// torch's stable ABI has no autograd, so this library serves only the version of torch that it was built with.

#include <ATen/FuncTorchTLS.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using torch::jit::Stack;

// Where an argument of the op that computes the gradients comes from.
struct Source {
  enum class Kind : std::uint8_t { kNone, kGrad, kInput, kResult };
  Kind kind;
  std::size_t index;

  bool is_saved() const { return kind == Kind::kInput || kind == Kind::kResult; }
};

// How the gradients of an op are computed.
struct Derivative {
  c10::OperatorHandle op;
  c10::OperatorHandle backward;
  std::vector<Source> takes;  // one for each argument of `backward`
  std::vector<std::optional<std::size_t>>
      gives;            // for each input of the op, the result of `backward` that is its gradient
  std::size_t results;  // the results that a caller gets; the others are for `backward`

  std::size_t inputs() const { return gives.size(); }
  const std::vector<c10::Argument>& arguments() const { return backward.schema().arguments(); }
};

bool is_tensor(const c10::Argument& argument) { return argument.type()->kind() == c10::TypeKind::TensorType; }

bool is_optional(const c10::Argument& argument) { return argument.type()->kind() == c10::TypeKind::OptionalType; }

// The last values of a stack.
auto last(Stack& stack, std::size_t count) { return stack.end() - static_cast<std::ptrdiff_t>(count); }

auto results_of(const c10::OperatorHandle& op, Stack& stack) { return last(stack, op.schema().returns().size()); }

variable_list called_below_autograd(const c10::OperatorHandle& op, Stack& stack) {
  const at::AutoDispatchBelowAutograd below;
  op.callBoxed(stack);
  variable_list results;
  for (const c10::IValue& value : stack) {
    results.push_back(value.toTensor());
  }
  return results;
}

// The node in the graph. Its tensors are the inputs that get a gradient.
struct Recorded : torch::autograd::Function<Recorded> {
  static variable_list forward(AutogradContext* ctx, const Derivative* derivative, Stack* stack, at::TensorList) {
    const Stack inputs(last(*stack, derivative->inputs()), stack->end());
    {
      const at::AutoDispatchBelowAutograd below;
      derivative->op.callBoxed(*stack);
    }
    const auto results = results_of(derivative->op, *stack);
    variable_list tensors;
    std::vector<c10::IValue> others{static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(derivative))};
    for (std::size_t i = 0; i < derivative->takes.size(); ++i) {
      const Source source = derivative->takes[i];
      if (source.is_saved()) {
        const auto from = source.kind == Source::Kind::kInput ? inputs.begin() : Stack::const_iterator(results);
        const c10::IValue& value = from[static_cast<std::ptrdiff_t>(source.index)];
        if (is_tensor(derivative->arguments()[i])) {
          tensors.push_back(value.toTensor());
        } else {
          others.push_back(value);
        }
      }
    }
    ctx->save_for_backward(std::move(tensors));
    ctx->saved_data["others"] = c10::ivalue::Tuple::create(std::move(others));
    ctx->set_materialize_grads(false);
    variable_list given;
    for (std::size_t i = 0; i < derivative->results; ++i) {
      given.push_back(results[static_cast<std::ptrdiff_t>(i)].toTensor());
    }
    stack->erase(results, stack->end());
    return given;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads);
};

// The computation of the gradients as a node, whose own gradient is refused.
struct Once : torch::autograd::Function<Once> {
  static variable_list forward(AutogradContext*, const Derivative* derivative, Stack* stack, at::TensorList) {
    return called_below_autograd(derivative->backward, *stack);
  }

  static variable_list backward(AutogradContext*, const variable_list&) { refuse(); }

  [[noreturn]] static void refuse() {
    TORCH_CHECK(false, "trying to differentiate twice an op whose gradient has no derivative. ",
                "Fix: compute the first gradient without create_graph=True.");
  }
};

variable_list Recorded::backward(AutogradContext* ctx, const variable_list& grads) {
  constexpr std::size_t kNotTensors = 2;  // the arguments of `forward` before its tensors
  const auto others = ctx->saved_data["others"].toTuple();
  const auto* derivative =  // NOLINTNEXTLINE(performance-no-int-to-ptr): `forward` saved it
      reinterpret_cast<const Derivative*>(static_cast<std::intptr_t>(others->elements()[0].toInt()));
  const auto defined = std::find_if(grads.begin(), grads.end(), [](const auto& grad) { return grad.defined(); });
  variable_list computed(derivative->backward.schema().returns().size());
  if (defined != grads.end()) {
    variable_list tensors = ctx->get_saved_variables();
    Stack stack;
    std::size_t tensor = 0;
    std::size_t other = 1;
    for (std::size_t i = 0; i < derivative->takes.size(); ++i) {
      const auto [kind, index] = derivative->takes[i];
      const c10::Argument& argument = derivative->arguments()[i];
      if (derivative->takes[i].is_saved()) {
        stack.push_back(is_tensor(argument) ? c10::IValue(tensors[tensor++]) : others->elements()[other++]);
      } else if (kind == Source::Kind::kGrad && grads[index].defined()) {
        stack.emplace_back(grads[index]);
      } else if (kind == Source::Kind::kGrad && !is_optional(argument)) {
        stack.emplace_back(at::zeros_like(*defined));  // the results of an op have one shape
      } else {
        stack.emplace_back();
      }
    }
    if (c10::GradMode::is_enabled()) {
      const c10::DispatchKeySet batched({c10::DispatchKey::Batched, c10::DispatchKey::FuncTorchBatched});
      if (std::any_of(defined, grads.end(),
                      [batched](const auto& grad) { return grad.defined() && grad.key_set().has_any(batched); })) {
        Once::refuse();  // the node would be lost with the batch
      }
      std::copy_if(defined, grads.end(), std::back_inserter(tensors), [](const auto& grad) { return grad.defined(); });
      computed = Once::apply(derivative, &stack, at::TensorList(tensors));
    } else {
      computed = called_below_autograd(derivative->backward, stack);
    }
  }
  variable_list given(kNotTensors);
  for (const auto& from : derivative->gives) {
    if (from.has_value()) {
      given.push_back(computed[*from]);
    }
  }
  return given;
}

// The kernel of the second name.
class Kernel final : public c10::OperatorKernel {
 public:
  explicit Kernel(Derivative derivative) : derivative_(std::move(derivative)) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
    if (at::functorch::functorchTLSAccessor()) {
      derivative_.op.callBoxed(*stack);
    } else if (is_differentiated(*stack)) {
      record(*stack);
      return;
    } else {
      const at::AutoDispatchBelowAutograd below;
      derivative_.op.callBoxed(*stack);
    }
    stack->erase(results_of(derivative_.op, *stack) + static_cast<std::ptrdiff_t>(derivative_.results), stack->end());
  }

 private:
  bool is_differentiated(Stack& stack) const {
    const bool records = c10::GradMode::is_enabled();
    return std::any_of(last(stack, derivative_.inputs()), stack.end(), [records](const c10::IValue& value) {
      if (!value.isTensor() || !value.toTensor().defined()) {
        return false;
      }
      const at::Tensor& tensor = value.toTensor();
      return (records && tensor.requires_grad()) || tensor._fw_grad(0).defined();  // torch refuses the second
    });
  }

  void record(Stack& stack) const {
    const auto inputs = last(stack, derivative_.inputs());
    variable_list tensors;
    for (std::size_t i = 0; i < derivative_.inputs(); ++i) {
      if (derivative_.gives[i].has_value()) {
        tensors.push_back(inputs[static_cast<std::ptrdiff_t>(i)].toTensor());
      }
    }
    for (at::Tensor& result : Recorded::apply(&derivative_, &stack, at::TensorList(tensors))) {
      stack.emplace_back(std::move(result));
    }
  }

  Derivative derivative_;
};

Source parsed(const std::string& text, const c10::Argument& argument, const Derivative& derivative) {
  const auto digits = std::min(text.find_first_of("0123456789"), text.size());
  const std::string_view word = std::string_view(text).substr(0, digits);
  std::size_t index = 0;
  const auto [stop, error] = std::from_chars(text.data() + digits, text.data() + text.size(), index);
  const bool has_index = error == std::errc() && stop == text.data() + text.size();
  if (text == "none" && is_optional(argument)) {
    return {Source::Kind::kNone, 0};
  }
  if (word == "grad" && has_index && index < derivative.results) {
    return {Source::Kind::kGrad, index};
  }
  if (word == "input" && has_index && index < derivative.inputs() && !is_optional(argument)) {
    return {Source::Kind::kInput, index};
  }
  TORCH_CHECK(
      word == "result" && has_index && index < derivative.op.schema().returns().size() && !is_optional(argument),
      "recording '", derivative.op.schema().name(), "' failed: got '", text, "' for '", argument.name(), "' of '",
      derivative.backward.schema().name(),
      "'; expected 'none' for an optional argument, or 'grad', 'input' or 'result' ",
      "and a number. Fix: change the Derivative in the op's kernels/functions file.");
  return {Source::Kind::kResult, index};
}

Derivative checked(const std::string& op, const std::string& backward, const std::vector<std::string>& takes,
                   const std::vector<std::int64_t>& gives, std::int64_t results) {
  auto& dispatcher = c10::Dispatcher::singleton();
  Derivative derivative{dispatcher.findSchemaOrThrow(op.c_str(), ""),
                        dispatcher.findSchemaOrThrow(backward.c_str(), ""),
                        {},
                        {},
                        static_cast<std::size_t>(results)};
  const auto& inputs = derivative.op.schema().arguments();
  const auto returned = static_cast<std::int64_t>(derivative.op.schema().returns().size());
  const auto computed = static_cast<std::int64_t>(derivative.backward.schema().returns().size());
  TORCH_CHECK(gives.size() == inputs.size() && takes.size() == derivative.arguments().size() && 0 < results &&
                  results <= returned,
              "recording '", op, "' failed: got ", gives.size(), " gradients, ", takes.size(), " arguments of '",
              backward, "' and ", results, " results; expected ", inputs.size(), ", ", derivative.arguments().size(),
              " and 1 to ", returned, ". Fix: change the Derivative in the op's kernels/functions file.");
  for (std::size_t i = 0; i < gives.size(); ++i) {
    TORCH_CHECK(gives[i] < 0 || (gives[i] < computed && is_tensor(inputs[i])), "recording '", op, "' failed: got ",
                gives[i], " for the gradient of '", inputs[i].name(), "'; expected a tensor, and less than ", computed,
                ". Fix: change the Derivative in the op's kernels/functions file.");
    derivative.gives.push_back(gives[i] < 0 ? std::nullopt : std::optional(static_cast<std::size_t>(gives[i])));
  }
  for (std::size_t i = 0; i < takes.size(); ++i) {
    derivative.takes.push_back(parsed(takes[i], derivative.arguments()[i], derivative));
  }
  return derivative;
}

// Registers the second name of an op.
void record(const std::string& op, const std::string& backward, const std::vector<std::string>& takes,
            const std::vector<std::int64_t>& gives, std::int64_t results) {
  Derivative derivative = checked(op, backward, takes, gives, results);
  const c10::FunctionSchema& schema = derivative.op.schema();
  const auto colons = schema.name().find("::");
  const std::string space = schema.name().substr(0, colons) + "_autograd";
  const std::string name = space + schema.name().substr(colons);
  const auto& returns = schema.returns();
  c10::FunctionSchema second(name, "", schema.arguments(), {returns.begin(), returns.begin() + results});
  static std::mutex mutex;
  static auto* const libraries = new std::deque<torch::Library>;  // never destroyed, as are the ops that they define
  const std::lock_guard lock(mutex);
  torch::Library& library =
      libraries->emplace_back(torch::Library::FRAGMENT, space, std::nullopt, "autograd.cpp", __LINE__);
  library.def(std::move(second),
              torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(std::move(derivative))));
  // A trace then has the op by its own name, which needs no library of this torch's.
  library.impl(name.c_str(), c10::DispatchKey::Tracer, torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY(anyaccel_autograd, library) {
  library.def("record(str op, str backward, str[] takes, int[] gives, int results) -> ()", &record);
}

}  // namespace
