#pragma once

#include <utility>

#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::parallel {

/// For its scope, gradients on the calling thread are in a unit of this rank's own, the weight of
/// its first micro-batch: what exchanges them within backward multiplies what it gives by the unit,
/// and divides what it gets.
class GradientUnit {
 public:
  /// @param unit one element in f64; undefined: gradients are in the same unit on all ranks.
  explicit GradientUnit(Tensor unit)
      : unit_(std::move(unit)),
        before_(std::exchange(current_, unit_.defined() ? &unit_ : nullptr)) {}
  GradientUnit(const GradientUnit&) = delete;
  GradientUnit& operator=(const GradientUnit&) = delete;
  ~GradientUnit() { current_ = before_; }

  /// The unit is the same on all ranks after all.
  static void forget() noexcept { current_ = nullptr; }
  /// Null where it is the same on all ranks.
  static const Tensor* current() noexcept { return current_; }

 private:
  static inline thread_local const Tensor* current_ = nullptr;
  Tensor unit_;
  const Tensor* before_;
};

/// What ranks exchange of a gradient, whatever the units of each: this rank's own in, its own out.
/// In wide dtype: what is multiplied by a unit may be beyond f16.
template <class Exchange>
Tensor exchanged_gradient(const Tensor& own, const Exchange& exchange) {
  if (!GradientUnit::current()) return exchange(own);
  const Tensor wide = size_of(own.dtype()) < size_of(DType::f32) ? own.to(DType::f32) : own;
  const Tensor unit = GradientUnit::current()->to(wide.dtype());
  return (exchange(wide * unit) / unit).to(own.dtype());
}

}  // namespace lockstep::parallel
