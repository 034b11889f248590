#pragma once

#include "arguments/optimizer.hpp"
#include "contract/backends.hpp"

/// @file
/// Kernels that take many arrays at once.

namespace lockstep::test {

using kernels::FlatArray;
using kernels::OptimizerTensors;
using AdamArguments = kernels::OptimizerArguments<AdamRule>;
using SgdArguments = kernels::OptimizerArguments<SgdRule>;

inline FlatArray flat(const DeviceArray& array) {
  const ArrayView& view = array.view();
  return {view.data, view.numel(), view.dtype};
}

class MultiTensorContract : public ContractTest {
 protected:
  static constexpr std::int64_t count = 2500;
  const kernels::MultiTensorKernels& family() const { return backend().multi_tensor; }
  const kernels::OptimizerKernels& optimizers() const { return *backend().optimizers; }
  /// State: f64 for f64 parameters, else f32.
  DeviceArray zeros() const { return array(statistics_dtype(), {count}).set(Values(count, 0.0)); }
  /// What a parameter of these values is rounded from; for dtypes that compute in themselves none.
  DeviceArray master(const DeviceArray& parameter) const {
    return array(statistics_dtype(), {count}).set(parameter.get());
  }
  OptimizerTensors tensors(const DeviceArray& p, const DeviceArray& g, const DeviceArray& m,
                           const DeviceArray& steps) {
    return {.parameter = flat(p),
            .gradient = flat(g),
            .state1 = flat(m),
            .counter = static_cast<kernels::StepCounter*>(steps.view().data)};
  }
  /// A number in the memory of the device.
  DeviceArray number(double value) const { return array(DType::f64, {1}).set({value}); }
  DeviceArray steps_made(int steps) const {
    return array(DType::i64, {2}).set({static_cast<double>(steps), 0});
  }
  static const double* in_memory(const DeviceArray& number) {
    return static_cast<const double*>(number.view().data);
  }
};

}  // namespace lockstep::test
