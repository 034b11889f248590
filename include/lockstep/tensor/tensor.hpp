#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/core/array_view.hpp"
#include "lockstep/core/device.hpp"
#include "lockstep/core/dtype.hpp"
#include "lockstep/tensor/hook_handle.hpp"
#include "lockstep/tensor/scalar.hpp"
#include "lockstep/tensor/tensor_impl.hpp"
#include "lockstep/tensor/tensor_options.hpp"

/// @file
/// The tensor: a handle of a strided, typed array on a device.

namespace lockstep {

/// A handle: copies refer to the same array, and so do views. Methods that compute are recorded by
/// autograd where an operand requires a gradient; they are queued on the device's current stream
/// and return before a GPU is done. A tensor may be read by several threads, and written by one.
///
/// The methods below "Autograd" are defined by the autograd layer.
class Tensor {
 public:
  /// An undefined tensor.
  Tensor() = default;
  /// A handle of an existing impl.
  explicit Tensor(IntrusivePtr<TensorImpl> impl) noexcept : impl_(std::move(impl)) {}
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  ~Tensor() = default;
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  /// Deleted: it would change a temporary handle and no element. Write x[0].copy_(row), and
  /// w.set_grad(g).
  void operator=(const Tensor&) && = delete;

  /// False for a default-constructed tensor.
  bool defined() const noexcept { return static_cast<bool>(impl_); }
  /// Extents, outermost first.
  const Shape& shape() const { return impl().shape; }
  /// Distances between neighbours, in elements.
  const Strides& strides() const { return impl().strides; }
  /// Number of dimensions.
  int dim() const { return impl().shape.size(); }
  /// Extent of one dimension; negative ones count from the end. @throws InvalidArgument.
  std::int64_t size(std::int64_t dim) const { return shape()[wrap_dim(dim, this->dim())]; }
  /// Number of elements.
  std::int64_t numel() const { return impl().numel; }
  /// Element type.
  DType dtype() const { return impl().dtype; }
  /// Where the array lives.
  Device device() const { return impl().storage->device(); }
  /// dtype and device, to create a tensor alike.
  TensorOptions options() const { return {dtype(), device()}; }
  /// True if elements follow one another in row-major order.
  bool is_contiguous() const { return impl().contiguous; }
  /// True for [N, C, H, W] whose memory is ordered N, H, W, C.
  bool is_channels_last() const;
  /// Bytes of all elements.
  std::size_t nbytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype()); }
  /// True if both handles refer to the same impl.
  bool is_same(const Tensor& other) const noexcept { return impl_ == other.impl_; }

  /// First element. @throws InvalidArgument if T is not the tensor's type.
  template <class T>
  T* data() const {
    check_type(dtype_of<T>);
    return static_cast<T*>(impl().memory());
  }
  /// True for a tensor in page-locked host memory, made by `pin_memory` or `empty_pinned`.
  bool is_pinned() const { return impl().storage->is_pinned(); }
  /// Declares that work queued on `stream` uses the memory, which was allocated on another stream
  /// (or is pinned): it is not given out again before that work is done.
  void record_stream(StreamRef stream) const { impl().storage->record_stream(stream); }

  /// First element, untyped; a write through it is not noted (see parallel::writable_buffer).
  void* data_ptr() const { return impl().memory(); }
  /// What kernels see.
  ArrayView view() const { return {impl().memory(), dtype(), shape(), strides()}; }
  /// All elements in order, for loops over flat data. @throws InvalidArgument unless the tensor is
  /// contiguous, on the CPU and of type T.
  template <class T>
  std::span<T> flat() const {
    check_flat();
    return {data<T>(), static_cast<std::size_t>(numel())};
  }
  /// All elements in row-major order, copied to the host and converted to T (any element type).
  /// Waits for the device.
  template <class T>
  std::vector<T> to_vector() const;
  /// The only element, converted to T (any element type). Waits for the device.
  /// @throws InvalidArgument unless numel is 1.
  template <class T = double>
  T item() const {
    T value;
    copy_item(dtype_of<T>, &value);
    return value;
  }

  /// The impl. @throws InvalidArgument for an undefined tensor.
  TensorImpl& impl() const {
    if (!impl_) [[unlikely]]
      throw_undefined();
    return *impl_;
  }
  /// Number of handles on the impl.
  std::uint32_t use_count() const noexcept { return impl_ ? impl_->use_count() : 0; }

  /// @name Autograd
  /// @{

  /// True if backward computes a gradient for this tensor.
  bool requires_grad() const noexcept { return impl_ && impl_->node && !impl_->frozen; }
  /// Makes a leaf require a gradient or not. One that requires none keeps its gradient, hooks and
  /// sink for later; meanwhile nothing is added, also by a loss recorded before. Returns itself.
  /// @throws InvalidArgument for a dtype without gradients, or for switching off a computed tensor.
  Tensor& set_requires_grad(bool required = true);
  /// True for tensors that no recorded op computed.
  bool is_leaf() const;
  /// The gradient that backward accumulated; undefined before the first, and while none is
  /// required. Leaves only.
  Tensor grad() const;
  /// Replaces the gradient (undefined clears it). @throws InvalidArgument if it does not fit.
  void set_grad(const Tensor& grad);
  /// Computes the gradients of all leaves this tensor depends on, adding to what they hold. The
  /// gradients are not recorded: there are none of second order. Threads may run backwards at once
  /// as long as these reach no leaf in common: give each thread a model of its own, as ranks have.
  /// @param gradient this tensor's own gradient; may be left out for a single element (then 1).
  /// @param retain_graph keep what backward needs, so that it can run again.
  void backward(const Tensor& gradient = {}, bool retain_graph = false) const;
  /// Calls `hook(gradient)` in each backward that computes this tensor's gradient, once that is
  /// complete; what it returns, if anything, takes the gradient's place. A leaf's hook sees what
  /// this backward adds, before `grad()` and the reducer of data parallelism do. A hook that holds
  /// this tensor keeps the graph alive. Recording is off while it runs, but for create_graph.
  /// @param hook takes `const Tensor&`, returns Tensor (undefined: keep the gradient) or nothing.
  /// @return to remove the hook by; it stays if the handle is dropped.
  /// @throws InvalidArgument if the tensor requires no gradient; backward throws it for a result
  /// of another shape, dtype or device than the gradient.
  template <class Hook>
  HookHandle register_hook(Hook hook) const {
    if constexpr (std::is_void_v<std::invoke_result_t<Hook&, const Tensor&>>)
      return add_hook([hook = std::move(hook)](const Tensor& gradient) mutable {
        hook(gradient);
        return Tensor();
      });
    else
      return add_hook(std::move(hook));
  }
  /// The same array outside the graph.
  Tensor detach() const;
  /// Makes all handles of this leaf refer to the array of `value`: how a module moves its
  /// parameters, and how parameters are shared out between ranks. The leaf stays what it was, with
  /// its hooks, its gradient, the place that data parallelism gave that, and optimizer state. What
  /// was recorded with the former array and needs its values can no longer run backward.
  ///
  /// The form may change too. Of another dtype or device, the leaf takes its gradient along. Of
  /// another shape, as for a share of a parameter, it must have no gradient at the time, and what
  /// is recorded with one shape must have run backward before the next. If something else gives the
  /// gradient its memory (autograd::GradientSink), such as the wrapper of data parallelism, that
  /// has the last word. Returns itself.
  /// @throws InvalidArgument, and nothing changes, for a computed tensor, a dtype that cannot have
  /// the gradient, another shape beside a gradient, or a form that a sink refuses.
  Tensor& set_data(const Tensor& value);
  /// @}

  /// @name Views (differentiable, share memory)
  /// @{

  /// Another shape over the same elements: a view where strides allow, else a copy. One extent may
  /// be -1. @throws InvalidArgument if the number of elements differs.
  Tensor reshape(Shape shape) const;
  /// As `reshape`, but never a copy. @throws InvalidArgument where only a copy could do.
  Tensor view(Shape shape) const;
  /// Joins dimensions `start` to `end`, both included.
  Tensor flatten(std::int64_t start = 0, std::int64_t end = -1) const;
  /// Dimensions in another order.
  Tensor permute(const Dims& order) const;
  /// Two dimensions swapped.
  Tensor transpose(std::int64_t dim0, std::int64_t dim1) const;
  /// Elements start, start + step, ... below end of one dimension. Negative bounds count from the
  /// end, and bounds are clipped, as in Python.
  Tensor slice(std::int64_t dim, std::int64_t start, std::int64_t end, std::int64_t step = 1) const;
  /// One index of a dimension, which disappears.
  Tensor select(std::int64_t dim, std::int64_t index) const;
  /// One index of the first dimension, which disappears.
  Tensor operator[](std::int64_t index) const { return select(0, index); }
  /// `length` indices of a dimension, from `start` on. @throws InvalidArgument beyond its extent.
  Tensor narrow(std::int64_t dim, std::int64_t start, std::int64_t length) const;
  /// The elements whose indices in two dimensions differ by `offset` (second minus first); they
  /// become the last dimension, in the place of those two.
  Tensor diagonal(std::int64_t offset = 0, std::int64_t dim1 = 0, std::int64_t dim2 = 1) const;
  /// Repeats dimensions of extent 1 without copying; -1 keeps an extent.
  Tensor expand(Shape shape) const;
  /// Inserts a dimension of extent 1.
  Tensor unsqueeze(std::int64_t dim) const;
  /// Removes a dimension of extent 1; others stay.
  Tensor squeeze(std::int64_t dim) const;
  /// Removes all dimensions of extent 1.
  Tensor squeeze() const;
  /// A matrix transposed; fewer dimensions stay. @throws InvalidArgument for more than two.
  Tensor t() const;
  /// @}

  /// @name Copies (differentiable)
  /// @{

  /// Itself if row-major, else a row-major copy.
  Tensor contiguous() const;
  /// [N, C, H, W] with memory ordered N, H, W, C (itself if it is so already).
  Tensor channels_last() const;
  /// A copy with memory of its own, contiguous.
  Tensor clone() const;
  /// The same values in another dtype (itself if it has it).
  Tensor to(DType dtype) const;
  /// The same values on another device (itself if it is there).
  /// @param non_blocking do not wait for the copy. To a GPU nothing else changes: host memory that
  /// is not pinned may be changed at once, as it is copied to pinned memory first; pinned memory
  /// not before the GPU's current stream is done with it. From a GPU the result is in pinned
  /// memory and there once that stream is so far: see HostCopy, which waits for just that.
  Tensor to(Device device, bool non_blocking = false) const;
  /// The same values on another device and in another dtype.
  Tensor to(Device device, DType dtype, bool non_blocking = false) const {
    return to(dtype).to(device, non_blocking);
  }
  /// A copy in page-locked host memory (itself if it is there). Not recorded.
  /// @throws InvalidArgument for a tensor on a GPU, Unsupported without a GPU.
  Tensor pin_memory() const;
  /// @}

  /// @name Ops as members
  /// Each is the function of its name, with this tensor as the first operand.
  /// @{

  /// `lockstep::abs`.
  Tensor abs() const;
  /// `lockstep::ceil`.
  Tensor ceil() const;
  /// `lockstep::cos`.
  Tensor cos() const;
  /// `lockstep::erf`.
  Tensor erf() const;
  /// `lockstep::exp`.
  Tensor exp() const;
  /// `lockstep::floor`.
  Tensor floor() const;
  /// `lockstep::log`.
  Tensor log() const;
  /// `lockstep::log1p`.
  Tensor log1p() const;
  /// `lockstep::log2`.
  Tensor log2() const;
  /// `lockstep::log10`.
  Tensor log10() const;
  /// `lockstep::tan`.
  Tensor tan() const;
  /// `lockstep::atan`.
  Tensor atan() const;
  /// `lockstep::neg`.
  Tensor neg() const;
  /// `lockstep::relu`.
  Tensor relu() const;
  /// `lockstep::round`.
  Tensor round() const;
  /// `lockstep::rsqrt`.
  Tensor rsqrt() const;
  /// `lockstep::sigmoid`.
  Tensor sigmoid() const;
  /// `lockstep::sign`.
  Tensor sign() const;
  /// `lockstep::sin`.
  Tensor sin() const;
  /// `lockstep::sqrt`.
  Tensor sqrt() const;
  /// `lockstep::square`.
  Tensor square() const;
  /// `lockstep::tanh`.
  Tensor tanh() const;
  /// `lockstep::isfinite`.
  Tensor isfinite() const;
  /// `lockstep::isinf`.
  Tensor isinf() const;
  /// `lockstep::isnan`.
  Tensor isnan() const;
  /// `lockstep::logical_not`.
  Tensor logical_not() const;
  /// `lockstep::clamp`.
  Tensor clamp(Scalar low, Scalar high) const;
  /// `lockstep::clamp_min`.
  Tensor clamp_min(Scalar low) const;
  /// `lockstep::clamp_max`.
  Tensor clamp_max(Scalar high) const;
  /// `lockstep::pow`.
  Tensor pow(double exponent) const;
  Tensor pow(const Tensor& exponent) const;
  /// `lockstep::eq`.
  Tensor eq(const Tensor& other) const;
  Tensor eq(Scalar value) const;
  /// `lockstep::ne`.
  Tensor ne(const Tensor& other) const;
  Tensor ne(Scalar value) const;
  /// `lockstep::lt`.
  Tensor lt(const Tensor& other) const;
  Tensor lt(Scalar value) const;
  /// `lockstep::le`.
  Tensor le(const Tensor& other) const;
  Tensor le(Scalar value) const;
  /// `lockstep::gt`.
  Tensor gt(const Tensor& other) const;
  Tensor gt(Scalar value) const;
  /// `lockstep::ge`.
  Tensor ge(const Tensor& other) const;
  Tensor ge(Scalar value) const;
  /// `lockstep::maximum`.
  Tensor maximum(const Tensor& other) const;
  /// `lockstep::minimum`.
  Tensor minimum(const Tensor& other) const;
  /// `lockstep::remainder`.
  Tensor remainder(const Tensor& other) const;
  Tensor remainder(Scalar value) const;
  /// `lockstep::logical_and`.
  Tensor logical_and(const Tensor& other) const;
  /// `lockstep::logical_or`.
  Tensor logical_or(const Tensor& other) const;
  /// `lockstep::matmul`.
  Tensor matmul(const Tensor& other) const;
  /// `lockstep::mm`.
  Tensor mm(const Tensor& other) const;
  /// `lockstep::bmm`.
  Tensor bmm(const Tensor& other) const;
  /// `lockstep::expand_as`.
  Tensor expand_as(const Tensor& other) const;
  /// `lockstep::softmax`.
  Tensor softmax(std::int64_t dim) const;
  /// `lockstep::log_softmax`.
  Tensor log_softmax(std::int64_t dim) const;
  /// `lockstep::sum`.
  Tensor sum(const Dims& dims = {}, bool keepdim = false) const;
  Tensor sum(DimIndex auto dim, bool keepdim = false) const { return sum(only(dim), keepdim); }
  /// `lockstep::mean`.
  Tensor mean(const Dims& dims = {}, bool keepdim = false) const;
  Tensor mean(DimIndex auto dim, bool keepdim = false) const { return mean(only(dim), keepdim); }
  /// `lockstep::prod`.
  Tensor prod(const Dims& dims = {}, bool keepdim = false) const;
  Tensor prod(DimIndex auto dim, bool keepdim = false) const { return prod(only(dim), keepdim); }
  /// `lockstep::amax`.
  Tensor amax(const Dims& dims = {}, bool keepdim = false) const;
  Tensor amax(DimIndex auto dim, bool keepdim = false) const { return amax(only(dim), keepdim); }
  /// `lockstep::amin`.
  Tensor amin(const Dims& dims = {}, bool keepdim = false) const;
  Tensor amin(DimIndex auto dim, bool keepdim = false) const { return amin(only(dim), keepdim); }
  /// `lockstep::logsumexp`.
  Tensor logsumexp(const Dims& dims = {}, bool keepdim = false) const;
  Tensor logsumexp(DimIndex auto dim, bool keepdim = false) const {
    return logsumexp(only(dim), keepdim);
  }
  /// `lockstep::norm`.
  Tensor norm(const Dims& dims = {}, bool keepdim = false) const;
  Tensor norm(DimIndex auto dim, bool keepdim = false) const { return norm(only(dim), keepdim); }
  /// `lockstep::any`.
  Tensor any(const Dims& dims = {}, bool keepdim = false) const;
  Tensor any(DimIndex auto dim, bool keepdim = false) const { return any(only(dim), keepdim); }
  /// `lockstep::all`.
  Tensor all(const Dims& dims = {}, bool keepdim = false) const;
  Tensor all(DimIndex auto dim, bool keepdim = false) const { return all(only(dim), keepdim); }
  /// `lockstep::var`.
  Tensor var(const Dims& dims = {}, std::int64_t correction = 1, bool keepdim = false) const;
  Tensor var(DimIndex auto dim, std::int64_t correction = 1, bool keepdim = false) const {
    return var(only(dim), correction, keepdim);
  }
  /// `lockstep::std`.
  Tensor std(const Dims& dims = {}, std::int64_t correction = 1, bool keepdim = false) const;
  Tensor std(DimIndex auto dim, std::int64_t correction = 1, bool keepdim = false) const {
    return std(only(dim), correction, keepdim);
  }
  /// `lockstep::max`.
  Tensor max() const;
  std::pair<Tensor, Tensor> max(std::int64_t dim, bool keepdim = false) const;
  /// `lockstep::min`.
  Tensor min() const;
  std::pair<Tensor, Tensor> min(std::int64_t dim, bool keepdim = false) const;
  /// `lockstep::argmax`.
  Tensor argmax() const;
  Tensor argmax(std::int64_t dim, bool keepdim = false) const;
  /// `lockstep::argmin`.
  Tensor argmin() const;
  Tensor argmin(std::int64_t dim, bool keepdim = false) const;
  /// `lockstep::cumsum`.
  Tensor cumsum(std::int64_t dim) const;
  /// `lockstep::sort`.
  std::pair<Tensor, Tensor> sort(std::int64_t dim = -1, bool descending = false) const;
  /// `lockstep::argsort`.
  Tensor argsort(std::int64_t dim = -1, bool descending = false) const;
  /// `lockstep::topk`.
  std::pair<Tensor, Tensor> topk(std::int64_t k, std::int64_t dim = -1, bool largest = true) const;
  /// `lockstep::masked_fill`.
  Tensor masked_fill(const Tensor& mask, Scalar value) const;
  /// `lockstep::masked_select`.
  Tensor masked_select(const Tensor& mask) const;
  /// `lockstep::nonzero`.
  Tensor nonzero() const;
  /// `lockstep::gather`.
  Tensor gather(std::int64_t dim, const Tensor& index) const;
  /// `lockstep::index_select`.
  Tensor index_select(std::int64_t dim, const Tensor& index) const;
  /// `lockstep::scatter`.
  Tensor scatter(std::int64_t dim, const Tensor& index, Scalar value) const;
  Tensor scatter(std::int64_t dim, const Tensor& index, const Tensor& source) const;
  /// `lockstep::flip`.
  Tensor flip(const Dims& dims) const;
  Tensor flip(DimIndex auto dim) const { return flip(only(dim)); }
  /// `lockstep::roll`.
  Tensor roll(std::int64_t shift, std::int64_t dim) const;
  /// `lockstep::scatter_add`.
  Tensor scatter_add(std::int64_t dim, const Tensor& index, const Tensor& source) const;
  /// `lockstep::index_add`.
  Tensor index_add(std::int64_t dim, const Tensor& index, const Tensor& source,
                   double alpha = 1.0) const;
  /// `lockstep::repeat`.
  Tensor repeat(const Dims& times) const;
  /// `lockstep::tril`.
  Tensor tril(std::int64_t diagonal = 0) const;
  /// `lockstep::triu`.
  Tensor triu(std::int64_t diagonal = 0) const;
  /// `lockstep::chunk`.
  std::vector<Tensor> chunk(std::int64_t chunks, std::int64_t dim = 0) const;
  /// `lockstep::split`.
  std::vector<Tensor> split(std::int64_t size, std::int64_t dim = 0) const;
  /// `lockstep::unbind`.
  std::vector<Tensor> unbind(std::int64_t dim = 0) const;
  /// @}

  /// @name In place
  /// Refused for tensors and operands that require a gradient unless recording is off
  /// (NoGradGuard). Backward refuses to use a saved value that was changed so. An operand may be
  /// the tensor itself, but not share memory with it otherwise; expanded tensors can only be
  /// filled.
  /// @{

  /// this += alpha * other, broadcast to this shape. Returns itself.
  Tensor& add_(const Tensor& other, double alpha = 1.0);
  /// this *= other, broadcast to this shape. Returns itself.
  Tensor& mul_(const Tensor& other);
  /// this += value. Returns itself. Integer dtypes take whole numbers only, here and below.
  Tensor& add_(Scalar value);
  /// this -= alpha * other, broadcast to this shape. Returns itself.
  Tensor& sub_(const Tensor& other, double alpha = 1.0);
  /// this -= value. Returns itself.
  Tensor& sub_(Scalar value);
  /// this *= value. Returns itself.
  Tensor& mul_(Scalar value);
  /// this /= other, broadcast to this shape. Returns itself. @throws Unsupported for integers:
  /// quotients are floating.
  Tensor& div_(const Tensor& other);
  /// this /= value. Returns itself. @throws as above.
  Tensor& div_(Scalar value);
  /// this = value where `mask` (bool, broadcast to this shape) is true. Returns itself.
  Tensor& masked_fill_(const Tensor& mask, Scalar value);
  /// Uniform over [low, high), drawn from the default generator. Returns itself.
  Tensor& uniform_(double low = 0.0, double high = 1.0);
  /// Normal, drawn from the default generator. Returns itself.
  Tensor& normal_(double mean = 0.0, double deviation = 1.0);
  /// this = other, broadcast, converted and moved between devices. Returns itself.
  /// @param non_blocking as of `to(Device)`; into host memory that is not pinned it waits all the
  /// same.
  Tensor& copy_(const Tensor& other, bool non_blocking = false);
  /// Sets all elements. Returns itself.
  Tensor& fill_(Scalar value);
  /// Sets all elements to zero. Returns itself.
  Tensor& zero_() { return fill_(0); }
  /// `add_`.
  Tensor& operator+=(const auto& operand) { return add_(operand); }
  /// `sub_`.
  Tensor& operator-=(const auto& operand) { return sub_(operand); }
  /// `mul_`.
  Tensor& operator*=(const auto& operand) { return mul_(operand); }
  /// `div_`.
  Tensor& operator/=(const auto& operand) { return div_(operand); }
  /// @}

 private:
  [[noreturn]] static void throw_undefined();
  void check_type(DType wanted) const;
  void check_flat() const;
  void copy_item(DType dtype, void* to) const;
  HookHandle add_hook(std::function<Tensor(const Tensor&)> hook) const;

  IntrusivePtr<TensorImpl> impl_;
};

/// Prints values as NumPy does, with shape, dtype and device; 4 digits, or what setprecision says.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace lockstep
