#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/backend.hpp"
#include "lockstep/core/dtype.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "lockstep/runtime/info.hpp"
#include "support/closeness.hpp"
#include "support/device_array.hpp"
#include "support/one_case.hpp"

/// @file
/// The product over which contract suites run: every backend of this build, every dtype.

namespace lockstep::test {

/// One backend and dtype.
struct Target {
  const backend::Backend* backend;
  Device device;
  DType dtype;
};

inline std::ostream& operator<<(std::ostream& out, const Target& target) {
  return out << target.backend->name << '/' << target.dtype;
}

/// "onednn_bf16"
inline std::string text_of(const Target& target) {
  return std::string(target.backend->name) + "_" + std::string(name(target.dtype));
}

/// Every backend of this build with each of the dtypes, as far as a case that runs has them.
inline std::vector<Target> targets(std::initializer_list<DType> dtypes) {
  std::vector<Target> all;
  const auto add = [&](const backend::Backend* backend, Device device) {
    if (!backend) return;
    for (const DType dtype : dtypes)
      if (const Target target{backend, device, dtype}; testing::is_wanted(text_of(target)))
        all.push_back(target);
  };
  add(&backend::cpu(), cpu);
  add(backend::onednn(), cpu);
  add(backend::cuda(), cuda(0));
  return all;
}

inline std::string target_name(const ::testing::TestParamInfo<Target>& info) {
  return text_of(info.param);
}

/// Base of contract suites: arrays on the target's device.
class ContractTest : public ::testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    if (GetParam().device.is_cuda() && cuda_device_count() == 0)
      GTEST_SKIP() << "no CUDA device on this machine";
  }

  DType dtype() const { return GetParam().dtype; }
  /// The dtype of statistics: f64 for f64 data, else f32.
  DType statistics_dtype() const { return dtype() == DType::f64 ? DType::f64 : DType::f32; }
  const backend::Backend& backend() const { return *GetParam().backend; }
  StreamRef stream() const { return current_stream(GetParam().device); }

  /// Whether kernels have set the counters of the stream back.
  bool counters_are_zero() const {
    DeviceRuntime& runtime = device_runtime(GetParam().device.type);
    const std::uint32_t* const counters = runtime.counters(stream());
    std::vector<std::uint32_t> found(counters ? stream_counters : 0);
    runtime.copy(found.data(), counters, found.size() * sizeof(std::uint32_t), stream());
    synchronize(stream());
    return (counters || GetParam().device.is_cpu()) &&
           std::ranges::count(found, 0u) == std::ssize(found);
  }

  /// An array of the target's dtype.
  DeviceArray array(const Shape& shape) const { return {dtype(), shape, GetParam().device}; }
  DeviceArray array(const Shape& shape, const Strides& strides) const {
    return {dtype(), shape, strides, GetParam().device};
  }
  DeviceArray array(DType type, const Shape& shape) const {
    return {type, shape, GetParam().device};
  }
  /// Tolerance of a sum of `terms` products of the target's dtype, held in f32 or f64.
  double tolerance(double terms = 1) const {
    const double sum = rounding(dtype() == DType::f64 ? DType::f64 : DType::f32);
    return 2 * rounding(dtype()) + 8 * sum * terms;
  }
};

}  // namespace lockstep::test
