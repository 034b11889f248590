#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lockstep/core/device.hpp"
#include "lockstep/core/dtype.hpp"

/// @file
/// Which gradients are reduced together.

namespace lockstep::parallel {

/// What the plan needs to know of a parameter.
struct ParameterInfo {
  std::int64_t numel = 0;
  DType dtype = DType::f32;
  Device device = cpu;
};

/// Sizes at which a bucket is closed.
struct BucketCaps {
  /// Of the bucket of each dtype and device that becomes ready last: its all-reduce is the exposed
  /// tail, so it is small.
  std::size_t last_bytes = std::size_t{1} << 20;
  /// Of all others.
  std::size_t bytes = std::size_t{25} << 20;
};

/// Gradients that lie in one array and are reduced by one collective.
struct Bucket {
  /// Indices of parameters, in the order in which they become ready.
  std::vector<std::size_t> parameters;
  /// First element of each parameter's gradient; every one is aligned to 64 bytes, on
  /// a GPU to 256.
  std::vector<std::int64_t> offsets;
  /// Elements of the array, gaps included.
  std::int64_t numel = 0;
  DType dtype = DType::f32;
  Device device = cpu;

  /// Of the array.
  std::size_t bytes() const { return static_cast<std::size_t>(numel) * size_of(dtype); }
};

/// Cuts parameters into buckets, in the order of the launches: that in which buckets are complete.
/// Parameters of different dtype or device never share a bucket, none is split, and a bucket closes
/// once its size reaches the cap. The same input gives the same plan on every rank.
/// @param parameters all of them.
/// @param ready_order indices of `parameters` in the order in which gradients become ready; at
/// first the reverse of the order of registration.
/// @param parts number of equal parts that each bucket can be cut into, all aligned.
/// @throws InvalidArgument unless `ready_order` names each parameter once.
std::vector<Bucket> plan_buckets(std::span<const ParameterInfo> parameters,
                                 std::span<const std::size_t> ready_order, BucketCaps caps = {},
                                 int parts = 1);

/// The same with the places where buckets end given: what lies between two of them makes a bucket
/// for each dtype and device among it.
/// @param ends places in the order, growing; the last is the number of parameters.
/// @throws InvalidArgument for other places or no order.
std::vector<Bucket> cut_buckets(std::span<const ParameterInfo> parameters,
                                std::span<const std::size_t> ready_order,
                                std::span<const std::size_t> ends);

/// Bytes that a parameter's gradient takes in a bucket, with the gap behind it.
std::size_t bytes_in_bucket(const ParameterInfo& parameter);

}  // namespace lockstep::parallel
