#include "lockstep/parallel/tensor_work.hpp"

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/record.hpp"
#include "lockstep/autograd/thread_modes.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/factories.hpp"
#include "parallel/checks.hpp"
#include "parallel/held_memory.hpp"
#include "tensor/read_note.hpp"

namespace lockstep::parallel {
namespace {

comm::Buffer buffer_of(const Tensor& x) { return {x.data_ptr(), x.numel(), x.dtype()}; }

void begin(const char* op, const Tensor& x, const Communicator& group) {
  HeldMemory::instance().sweep();
  check_on_device_of(op, x, group);
  LOCKSTEP_CHECK(!autograd::recording(x), InvalidArgument, op,
                 ": is not recorded, but the tensor requires a gradient; use the differentiable "
                 "collective, or pass detach()");
  if (autograd::thread_modes.noting_reads) note_read(x, op);
}

/// What is compared between the ranks: equal counts alone would let [2, 3] pair with [3, 2].
std::string label_or_shape(std::string_view label, std::string_view op, const Tensor& x) {
  return label.empty() ? detail::concat(op, " of ", x.shape()) : std::string(label);
}

}  // namespace

TensorWork::TensorWork(comm::Work work, Tensor result, std::initializer_list<Tensor> operands,
                       std::shared_ptr<bool> awaited)
    : work_(std::move(work)), result_(std::move(result)), awaited_(std::move(awaited)) {
  held_.push_back(result_.impl().storage);
  for (const Tensor& operand : operands) held_.push_back(operand.impl().storage);
}

TensorWork& TensorWork::operator=(TensorWork&& other) noexcept {
  if (this == &other) return *this;
  hold_until_done();
  work_ = std::move(other.work_);
  result_ = std::move(other.result_);
  held_ = std::move(other.held_);
  awaited_ = std::move(other.awaited_);
  return *this;
}

TensorWork::~TensorWork() { hold_until_done(); }

Tensor TensorWork::wait() {
  if (awaited_) *awaited_ = true;
  work_.wait();
  // From here on the collective is done before anything later on this stream, so the memory may go
  // as soon as the stream has come here.
  for (const auto& storage : held_) storage->record_stream(current_stream(storage->device()));
  held_.clear();
  return result_;
}

void TensorWork::hold_until_done() noexcept {
  if (held_.empty()) return;
  try {
    if (!StepRecording::current() && work_.is_completed())
      HeldMemory::order_release(work_, held_);
    else
      HeldMemory::instance().keep(work_, held_);
  } catch (...) {
    // The device has failed, or no host memory is left: the group tells whoever uses it next.
  }
}

TensorWork all_reduce_async(const Tensor& x, Communicator& group, comm::ReduceOp reduction,
                            std::string_view label) {
  begin("all_reduce_async", x, group);
  const NoGradGuard no_recording;
  const Tensor y = x.clone();
  const std::string told = label_or_shape(label, "all_reduce", x);
  return {group.all_reduce(buffer_of(y), reduction, {.label = told}), y};
}

TensorWork all_gather_async(const Tensor& x, Communicator& group, std::string_view label) {
  begin("all_gather_async", x, group);
  check_dimension("all_gather_async", x, 0);
  const NoGradGuard no_recording;
  const Tensor part = x.contiguous();
  Shape shape = x.shape();
  shape[0] *= group.size();
  const Tensor whole = empty(shape, x.options());
  const std::string told = label_or_shape(label, "all_gather", x);
  return {group.all_gather(buffer_of(part), buffer_of(whole), {}, {.label = told}), whole, {part}};
}

TensorWork reduce_scatter_async(const Tensor& x, Communicator& group, comm::ReduceOp reduction,
                                std::string_view label) {
  begin("reduce_scatter_async", x, group);
  check_divides("reduce_scatter_async", x, 0, group);
  const NoGradGuard no_recording;
  const Tensor whole = x.contiguous();
  Shape shape = x.shape();
  shape[0] /= group.size();
  const Tensor part = empty(shape, x.options());
  const std::string told = label_or_shape(label, "reduce_scatter", x);
  return {group.reduce_scatter(buffer_of(whole), buffer_of(part), reduction, {}, {.label = told}),
          part,
          {whole}};
}

TensorWork broadcast_async(const Tensor& x, Communicator& group, int root, std::string_view label) {
  begin("broadcast_async", x, group);
  const NoGradGuard no_recording;
  const Tensor y = x.clone();
  const std::string told = label_or_shape(label, "broadcast", x);
  return {group.broadcast(buffer_of(y), root, {.label = told}), y};
}

}  // namespace lockstep::parallel
