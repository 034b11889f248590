#pragma once

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Comparing whole tensors, for tests and checks. All wait for the device.

namespace lockstep {

/// True if shapes, dtypes and all elements are equal.
/// @param equal_nan whether NaN equals NaN.
bool equal(const Tensor& a, const Tensor& b, bool equal_nan = false);

/// True if shapes agree and |a - b| <= atol + rtol * |b| everywhere. NaN is close to nothing.
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8);

/// Largest |a - b|; NaN if there is one. @throws InvalidArgument if shapes differ.
double max_abs_difference(const Tensor& a, const Tensor& b);

}  // namespace lockstep
