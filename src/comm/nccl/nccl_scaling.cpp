#include "comm/nccl/nccl_scaling.hpp"

#include <bit>

#include "arguments/elementwise.hpp"
#include "runtime/cuda/device_guard.hpp"

namespace lockstep::comm {
namespace {

bool rounds_factors(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

void scale(std::byte* to, const std::byte* from, std::int64_t count, DType dtype, double factor,
           StreamRef stream) {
  if (count == 0) return;
  const CudaDeviceGuard guard(stream.device.index);
  const ArrayView out{to, dtype, Shape{count}, Strides{1}};
  const ArrayView in{const_cast<std::byte*>(from), dtype, Shape{count}, Strides{1}};
  cuda_kernels::elementwise::unary(
      {.op = UnaryOp::affine, .y = out, .x = in, .constants = {.alpha = factor, .beta = 0.0}},
      stream);
}

}  // namespace

NcclScaling::NcclScaling(Operation& operation, int rank, int size, StreamRef stream)
    : stream_(stream), dtype_(operation.dtype), output_(operation.output) {
  if (size == 1) reduce_alone(operation);
  if (size == 1 || !rounds_factors(dtype_)) return;
  if (operation.reduction.kind == ReduceKind::scaled_sum) scale_before(operation);
  if (operation.reduction.kind == ReduceKind::average) divide_around(operation, rank, size);
}

void NcclScaling::reduce_alone(Operation& operation) {
  if (operation.reduction.kind == ReduceKind::scaled_sum) {
    scale(operation.output, operation.input, operation.count, dtype_, operation.reduction.factor,
          stream_);
    operation.input = operation.output;
  }
  operation.reduction = ReduceOp::sum();
}

void NcclScaling::divide_around(Operation& operation, int rank, int size) {
  const auto ranks = static_cast<unsigned>(size);
  if (std::has_single_bit(ranks)) return;
  const double power = std::bit_ceil(ranks);
  operation.reduction = ReduceOp::scaled_sum(1.0 / power);
  factor_after_ = power / size;
  output_count_ = operation.kind == OperationKind::reduce_scatter
                      ? operation.counts[static_cast<std::size_t>(rank)]
                      : operation.count;
}

NcclScaling::~NcclScaling() {
  if (scaled_) device_allocator(stream_.device).deallocate(scaled_);
}

void NcclScaling::scale_before(Operation& operation) {
  const std::byte* const input = operation.input;
  std::byte* target = operation.output;
  if (operation.kind == OperationKind::reduce_scatter) {
    const auto bytes = static_cast<std::size_t>(operation.count) * size_of(dtype_);
    scaled_ = device_allocator(stream_.device).allocate(bytes, stream_);
    target = scaled_ ? static_cast<std::byte*>(scaled_->data) : nullptr;
    operation.input = target;
  }
  scale(target, input, operation.count, dtype_, operation.reduction.factor, stream_);
  operation.reduction = ReduceOp::sum();
}

void NcclScaling::finish() const {
  if (factor_after_ != 1.0) scale(output_, output_, output_count_, dtype_, factor_after_, stream_);
}

}  // namespace lockstep::comm
