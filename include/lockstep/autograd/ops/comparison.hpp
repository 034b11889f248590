#pragma once

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Elementwise comparisons and logic, of any dtype. Results are bool and not differentiable; shapes
/// broadcast by NumPy's rules. NaN differs from everything, itself included, and counts as true.
///
/// A number is compared as it is with integers and bool, past 2^53 too if it is given as an
/// integer, and rounded to a floating tensor's dtype.

namespace lockstep {

/// a == b.
Tensor eq(const Tensor& a, const Tensor& b);
/// a != b.
Tensor ne(const Tensor& a, const Tensor& b);
/// a < b.
Tensor lt(const Tensor& a, const Tensor& b);
/// a <= b.
Tensor le(const Tensor& a, const Tensor& b);
/// a > b.
Tensor gt(const Tensor& a, const Tensor& b);
/// a >= b.
Tensor ge(const Tensor& a, const Tensor& b);
/// x == value.
Tensor eq(const Tensor& x, Scalar value);
/// x != value.
Tensor ne(const Tensor& x, Scalar value);
/// x < value.
Tensor lt(const Tensor& x, Scalar value);
/// x <= value.
Tensor le(const Tensor& x, Scalar value);
/// x > value.
Tensor gt(const Tensor& x, Scalar value);
/// x >= value.
Tensor ge(const Tensor& x, Scalar value);

/// True where x is NaN.
Tensor isnan(const Tensor& x);
/// True where x is infinite.
Tensor isinf(const Tensor& x);
/// True where x is neither infinite nor NaN.
Tensor isfinite(const Tensor& x);

/// True where both are: what is not 0 is true, here as in all logic. dtypes may differ.
Tensor logical_and(const Tensor& a, const Tensor& b);
/// True where at least one is.
Tensor logical_or(const Tensor& a, const Tensor& b);
/// True where exactly one is.
Tensor logical_xor(const Tensor& a, const Tensor& b);
/// True where x is not.
Tensor logical_not(const Tensor& x);

/// Elementwise a == b.
inline Tensor operator==(const Tensor& a, const Tensor& b) { return eq(a, b); }
/// Elementwise a != b.
inline Tensor operator!=(const Tensor& a, const Tensor& b) { return ne(a, b); }
/// Elementwise a < b.
inline Tensor operator<(const Tensor& a, const Tensor& b) { return lt(a, b); }
/// Elementwise a <= b.
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return le(a, b); }
/// Elementwise a > b.
inline Tensor operator>(const Tensor& a, const Tensor& b) { return gt(a, b); }
/// Elementwise a >= b.
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return ge(a, b); }
/// Elementwise x == value.
inline Tensor operator==(const Tensor& x, Scalar value) { return eq(x, value); }
/// Elementwise x != value.
inline Tensor operator!=(const Tensor& x, Scalar value) { return ne(x, value); }
/// Elementwise x < value.
inline Tensor operator<(const Tensor& x, Scalar value) { return lt(x, value); }
/// Elementwise x <= value.
inline Tensor operator<=(const Tensor& x, Scalar value) { return le(x, value); }
/// Elementwise x > value.
inline Tensor operator>(const Tensor& x, Scalar value) { return gt(x, value); }
/// Elementwise x >= value.
inline Tensor operator>=(const Tensor& x, Scalar value) { return ge(x, value); }
/// Elementwise value == x.
inline Tensor operator==(Scalar value, const Tensor& x) { return eq(x, value); }
/// Elementwise value != x.
inline Tensor operator!=(Scalar value, const Tensor& x) { return ne(x, value); }
/// Elementwise value < x.
inline Tensor operator<(Scalar value, const Tensor& x) { return gt(x, value); }
/// Elementwise value <= x.
inline Tensor operator<=(Scalar value, const Tensor& x) { return ge(x, value); }
/// Elementwise value > x.
inline Tensor operator>(Scalar value, const Tensor& x) { return lt(x, value); }
/// Elementwise value >= x.
inline Tensor operator>=(Scalar value, const Tensor& x) { return le(x, value); }
/// Elementwise `logical_not`.
inline Tensor operator!(const Tensor& x) { return logical_not(x); }

}  // namespace lockstep
