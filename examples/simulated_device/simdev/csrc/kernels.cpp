// The ops that create tensors, view them, or move them between devices; all others run on the host
// (fallback.cpp).

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>
#include <utility>

#include "memory.h"

namespace simdev {
namespace {

using at::IntArrayRef;
using at::Tensor;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

void require_plain(std::optional<at::Layout> layout, std::optional<bool> pinned) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::layout_or_default(layout) == at::kStrided, "making a simdev tensor failed: got ",
                              c10::layout_or_default(layout), "; expected strided.");
  TORCH_CHECK(!c10::pinned_memory_or_default(pinned), "making a simdev tensor failed: got pin_memory=True, ",
              "which is for CPU tensors only.");
}

Tensor empty(IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
             std::optional<at::Device> device, std::optional<bool> pinned, std::optional<at::MemoryFormat> format) {
  require_plain(layout, pinned);
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_generic(size, &Allocator::instance(), kKeys, c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(IntArrayRef size, IntArrayRef stride, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout> layout, std::optional<at::Device> device, std::optional<bool> pinned) {
  require_plain(layout, pinned);
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_strided_generic(size, stride, &Allocator::instance(), kKeys, c10::dtype_or_default(dtype));
}

const Tensor& resize(const Tensor& self, IntArrayRef size, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(self.device());  // for allocations
  return at::native::resize_(self, size, format);
}

Tensor& set_storage(Tensor& self, at::Storage source, int64_t offset, IntArrayRef size, IntArrayRef stride) {
  const c10::DeviceGuard guard(self.device());  // for a storage that is too small
  return at::native::set_storage_cpu_(self, std::move(source), offset, size, stride);
}

Tensor& set_empty(Tensor& self) {
  const c10::DeviceGuard guard(self.device());
  const auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0,
                                                             &Allocator::instance(), /*resizable=*/true);
  return set_storage(self, at::Storage(storage), 0, {0}, {});
}

/// The host's view of a tensor's memory; every tensor of a simulated device has one.
Tensor on_host(const Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  auto* const data = tensor.mutable_data_ptr();  // this also ends sharing with a lazy clone
  auto view = at::from_blob(data, tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
  view._set_conj(tensor.is_conj());
  view._set_neg(tensor.is_neg());
  return view;
}

/// Registered in addition to _copy_from, which torch's own copy_ calls: that copy_ never ends for a conjugate view.
Tensor& copy(Tensor& target, const Tensor& source, bool) {
  at::assert_no_partial_overlap(target, source);
  on_host(target).copy_(on_host(source));
  return target;
}

Tensor copy_from(const Tensor& source, const Tensor& target, bool) {
  on_host(target).copy_(on_host(source));
  return target;
}

Tensor copy_from_and_resize(const Tensor& source, const Tensor& target) {
  target.resize_(source.sizes());
  return copy_from(source, target, false);
}

at::Scalar local_scalar_dense(const Tensor& self) { return on_host(self).item(); }

void record_stream(Tensor& self, c10::Stream stream) {
  Allocator::instance().recordStream(self.storage().data_ptr(), stream);
}

/// Like torch's CPU kernel, but with the device's generator, for which the schema has no argument.
std::tuple<Tensor, Tensor> native_dropout(const Tensor& input, double p, std::optional<bool> is_training) {
  auto mask = at::empty_like(input, input.options().dtype(at::kBool));
  if (!is_training.value_or(true)) return {input.clone(), mask.fill_(true)};
  mask.bernoulli_(1 - p);
  return {input.mul(mask).mul_(p == 1 ? 0.0 : 1 / (1 - p)), mask};
}

void require_same_device(const Tensor& input, const Tensor& weight) {
  TORCH_CHECK(weight.device() == input.device(), "convolution failed: got an input on ", input.device(),
              " and a weight on ", weight.device(),
              "; expected them on the same device. Fix: pass weight.to(input.device).");
}

// Only for convolution does the composite op call a kernel of another name, so the fallback is never reached.

Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, IntArrayRef stride,
                   IntArrayRef padding, IntArrayRef dilation, bool is_transposed, IntArrayRef output_padding,
                   int64_t groups) {
  require_same_device(input, weight);
  const auto host_bias = bias && bias->defined() ? on_host(*bias) : Tensor();
  return at::convolution(on_host(input), on_host(weight), host_bias, stride, padding, dilation, is_transposed,
                         output_padding, groups)
      .to(input.device());
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& gradient, const Tensor& input,
                                                        const Tensor& weight, IntArrayRef stride, IntArrayRef padding,
                                                        IntArrayRef dilation, bool is_transposed,
                                                        IntArrayRef output_padding, int64_t groups,
                                                        std::array<bool, 3> wanted) {
  const auto bias_size = weight.size(is_transposed ? 1 : 0) * (is_transposed ? groups : 1);
  const auto [of_input, of_weight, of_bias] =
      at::convolution_backward(on_host(gradient), on_host(input), on_host(weight), {{bias_size}}, stride, padding,
                               dilation, is_transposed, output_padding, groups, wanted);
  const auto moved = [&](const Tensor& tensor) { return tensor.defined() ? tensor.to(input.device()) : tensor; };
  return {moved(of_input), moved(of_weight), moved(of_bias)};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("resize_", &resize);
  library.impl("set_", &set_empty);
  library.impl("set_.source_Storage", &at::native::set_);
  library.impl("set_.source_Tensor", &at::native::set_tensor_);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
  library.impl("is_set_to", &at::native::is_set_to);

  library.impl("view", &at::native::view);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("unfold", &at::native::unfold);
  library.impl("view_as_real", &at::native::view_as_real);
  library.impl("view_as_complex", &at::native::view_as_complex);

  library.impl("copy_", &copy);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("_local_scalar_dense", &local_scalar_dense);
  library.impl("record_stream", &record_stream);
  library.impl("convolution_overrideable", &convolution);
  library.impl("convolution_backward_overrideable", &convolution_backward);
  library.impl("native_dropout", &native_dropout);
}

}  // namespace
}  // namespace simdev
