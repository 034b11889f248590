#pragma once

#include <limits>
#include <span>
#include <tuple>

#include "arguments/family.hpp"
#include "functional/gradient_scaling.hpp"
#include "functional/loss_scale.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Work on whole lists of arrays: one call (on a GPU one launch, or few) for all of them.

namespace lockstep::kernels {

/// out = sum of squares over all arrays: a functional::SquareSum, two f64 elements.
struct SquareSumArguments {
  ArrayView out = {};
  std::span<const ArrayView> arrays = {};
  auto lists() { return std::tuple(&arrays); }
};

/// Multiplies every array by min(1, limit / (norm + 1e-6)), read on the device.
struct ClipArguments {
  std::span<const ArrayView> arrays = {};
  ArrayView norm = {};  ///< one f64 element
  double limit = 0.0;
  auto lists() { return std::tuple(&arrays); }
};

/// out[k] += the sum of functional::fingerprint_of over the elements of the k-th array.
struct FingerprintArguments {
  ArrayView out = {};                      ///< i64
  std::span<const ArrayView> arrays = {};  ///< contiguous, of any dtypes
  auto lists() { return std::tuple(&arrays); }
};

/// Divides every array by a number that is read on the device. @pre its inverse is finite.
struct DivideArguments {
  std::span<const ArrayView> arrays = {};
  ArrayView divisor = {};     ///< one f64 element
  ArrayView square_sum = {};  ///< of the quotients, as of SquareSumArguments
  auto lists() { return std::tuple(&arrays); }
};

/// What an optimizer's step is told of gradients that `square_sum` was taken of. All other arrays
/// are of one f64 element.
struct GradientScalingArguments {
  ArrayView square_sum = {};  ///< as of SquareSumArguments
  ArrayView loss_scale = {};  ///< that is in the gradients; absent: none
  double limit = std::numeric_limits<double>::infinity();  ///< of their norm without it
  ArrayView norm = {};       ///< written: the norm without the loss scale, before it is limited
  ArrayView divisor = {};    ///< written: takes the loss scale off and limits the norm
  ArrayView found_inf = {};  ///< written: 1 if the sum is not finite, else 0
};

/// The loss scale after a step. All arrays are of one element.
struct LossScaleArguments {
  ArrayView scale = {};                             ///< f64
  ArrayView finite_steps = {}, skipped_steps = {};  ///< i64
  ArrayView found_inf = {};                         ///< f64; not 0: the step was skipped
  LossScaleRule rule = {};
};

/// averages[i] += share * (values[i] - averages[i]), element by element: a moving average, or with
/// a share of 1 / n the mean of n values. Both arrays of a pair are contiguous; the average is f64
/// for f64 values, else f32.
struct AverageArguments {
  std::span<const ArrayView> averages = {}, values = {};
  double share = 1.0;
  auto lists() { return std::tuple(&averages, &values); }
};

/// outs[i] = ins[i], f32 rounded to bf16 or f16; arrays of one dtype on each side. Both of a pair
/// are contiguous.
struct RoundArguments {
  std::span<const ArrayView> outs = {}, ins = {};
  auto lists() { return std::tuple(&outs, &ins); }
};

}  // namespace lockstep::kernels

/// Whole-list updates of one backend. Work runs in the order of the stream.
#define LOCKSTEP_MULTI_TENSOR_KERNELS(KERNEL)        \
  KERNEL(average, AverageArguments)                  \
  KERNEL(round, RoundArguments)                      \
  KERNEL(square_sum, SquareSumArguments)             \
  KERNEL(clip, ClipArguments)                        \
  KERNEL(fingerprint, FingerprintArguments)          \
  KERNEL(divide, DivideArguments)                    \
  KERNEL(gradient_scaling, GradientScalingArguments) \
  KERNEL(update_loss_scale, LossScaleArguments)
LOCKSTEP_KERNEL_FAMILY(multi_tensor, MultiTensorKernels, LOCKSTEP_MULTI_TENSOR_KERNELS)
