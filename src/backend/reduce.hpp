#pragma once

#include <cstdint>
#include <span>

#include "functional/op_list.hpp"
#include "lockstep/core/array_view.hpp"
#include "lockstep/runtime/stream.hpp"

namespace lockstep::backend {

/// Reductions and index ops. Work runs in the order of the stream. bf16 and f16 accumulate in f32.
class Reduce {
 public:
  virtual ~Reduce() = default;

  /// Reduces `in` into `out`, which has the same rank with extent 1 in every reduced dimension.
  /// With `accumulate`, adds to what `out` holds (sum only). Floating; amax and amin also i64 and
  /// i32, sum every dtype. `out` has the dtype of `in`; that of a sum or a sum of squares may also
  /// be the one it is held in: f32 for bf16 and f16, i64 for integers and bool (u8, bool: only so).
  virtual void reduce(ReduceOp op, const ArrayView& out, const ArrayView& in, bool accumulate,
                      StreamRef stream) = 0;
  /// out (i64, extent 1 along dim) = position of the first largest (or smallest) element.
  virtual void arg_extreme(const ArrayView& out, const ArrayView& in, int dim, bool largest,
                           StreamRef stream) = 0;
  /// Running sum along dim; with `reverse`, from the end.
  virtual void cumsum(const ArrayView& out, const ArrayView& in, int dim, bool reverse,
                      StreamRef stream) = 0;
  /// The k largest along the last dimension, in falling order, ties by lower index.
  virtual void topk(const ArrayView& values, const ArrayView& indices, const ArrayView& in,
                    std::int64_t k, StreamRef stream) = 0;
  /// out = in gathered along dim: out[..i..] = in[..index[..i..]..]; `index` (i64) has out's shape.
  /// @throws InvalidArgument for an index out of range (CPU); undefined value there on a GPU.
  virtual void gather(const ArrayView& out, const ArrayView& in, const ArrayView& index, int dim,
                      StreamRef stream) = 0;
  /// out[..index[..i..]..] += in[..i..] along dim: the backward of gather. Every addition is
  /// rounded to the dtype.
  virtual void scatter_add(const ArrayView& out, const ArrayView& in, const ArrayView& index,
                           int dim, StreamRef stream) = 0;
};

/// What one tensor of a multi-tensor optimizer step works on. All of one shape and contiguous. The
/// states and the master copy are f64 for f64 parameters, else f32.
struct OptimizerTensors {
  ArrayView parameter;
  ArrayView gradient;
  ArrayView master;  ///< What is updated, and the parameter rounded from; absent: the parameter.
  ArrayView state1;  ///< SGD: momentum. Adam: first moment. Absent where unused.
  ArrayView state2;  ///< Adam: second moment.
  ArrayView max_state2;  ///< Adam with amsgrad: largest second moment so far.
};

/// Constants of an SGD step, as in PyTorch's SGD.
struct SgdConstants {
  double lr, momentum, dampening, weight_decay;
  bool nesterov, maximize, first_step;
};

/// Constants of an Adam or AdamW step, as in PyTorch's; `step` counts from 1.
struct AdamConstants {
  double lr, beta1, beta2, eps, weight_decay;
  bool decoupled_decay, amsgrad, maximize;
  std::int64_t step;
};

/// Whole-list updates: one call (on a GPU one launch, or few) for all parameters of a group.
class MultiTensor {
 public:
  virtual ~MultiTensor() = default;

  /// One SGD step on every tensor of the list.
  virtual void sgd(std::span<const OptimizerTensors> tensors, const SgdConstants& constants,
                   StreamRef stream) = 0;
  /// One Adam or AdamW step on every tensor of the list.
  virtual void adam(std::span<const OptimizerTensors> tensors, const AdamConstants& constants,
                    StreamRef stream) = 0;
  /// out (one f64 element) = sum of squares over all arrays.
  virtual void square_sum(const ArrayView& out, std::span<const ArrayView> arrays,
                          StreamRef stream) = 0;
  /// Multiplies every array by min(1, limit / (sqrt(square_sum) + 1e-6)), read on the device.
  virtual void clip(std::span<const ArrayView> arrays, const ArrayView& square_sum, double limit,
                    StreamRef stream) = 0;
};

}  // namespace lockstep::backend
