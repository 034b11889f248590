#pragma once

#include <functional>
#include <utility>

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::parallel {

/// For its scope, gradients on the calling thread are in a unit of this rank's own, such as the
/// weight of its first micro-batch: what exchanges them within backward multiplies what it gives by
/// the unit, and divides what it gets.
class GradientUnit {
 public:
  /// @param unit one element in f64; undefined: gradients are in the same unit on all ranks.
  explicit GradientUnit(Tensor unit)
      : unit_(std::move(unit)),
        before_(std::exchange(current_, unit_.defined() ? this : nullptr)) {}
  GradientUnit(const GradientUnit&) = delete;
  GradientUnit& operator=(const GradientUnit&) = delete;
  ~GradientUnit() { current_ = before_; }

  /// The unit is the same on all ranks after all.
  static void forget() noexcept { current_ = nullptr; }
  /// The unit is another, which is computed if anything asks for it.
  static void become(std::function<Tensor()> unit) {
    if (!current_) return;
    current_->unit_ = {};
    current_->later_ = std::move(unit);
  }
  /// Undefined where it is the same on all ranks.
  static Tensor current() {
    if (!current_) return {};
    if (!current_->unit_.defined()) {
      const NoGradGuard no_recording;
      current_->unit_ = current_->later_();
    }
    return current_->unit_;
  }

 private:
  static inline thread_local GradientUnit* current_ = nullptr;
  Tensor unit_;
  std::function<Tensor()> later_;
  GradientUnit* before_;
};

/// What ranks exchange of a gradient, whatever the units of each: this rank's own in, its own out.
/// In wide dtype: what is multiplied by a unit may be beyond f16.
template <class Exchange>
Tensor exchanged_gradient(const Tensor& own, const Exchange& exchange) {
  const Tensor exact = GradientUnit::current();
  if (!exact.defined()) return exchange(own);
  const Tensor wide = size_of(own.dtype()) < size_of(DType::f32) ? own.to(DType::f32) : own;
  const Tensor unit = exact.to(wide.dtype());
  return (exchange(wide * unit) / unit).to(own.dtype());
}

}  // namespace lockstep::parallel
