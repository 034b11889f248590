#include "lockstep/tensor/compare.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep {
namespace {

template <class T>
bool same_values(const Tensor& a, const Tensor& b, bool equal_nan) {
  return std::ranges::equal(a.to_vector<T>(), b.to_vector<T>(), [=](T x, T y) {
    return x == y || (equal_nan && x != x && y != y);  // NaN alone differs from itself
  });
}

}  // namespace

bool equal(const Tensor& a, const Tensor& b, bool equal_nan) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  return is_floating(a.dtype()) ? same_values<double>(a, b, equal_nan)
                                : same_values<std::int64_t>(a, b, equal_nan);
}

bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol) {
  if (a.shape() != b.shape()) return false;
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  return std::equal(x.begin(), x.end(), y.begin(), [=](double p, double q) {
    return p == q || (std::isfinite(q) && std::abs(p - q) <= atol + rtol * std::abs(q));
  });
}

double max_abs_difference(const Tensor& a, const Tensor& b) {
  LOCKSTEP_CHECK(a.shape() == b.shape(), InvalidArgument, "cannot compare shapes ", a.shape(),
                 " and ", b.shape());
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double difference = x[i] == y[i] ? 0.0 : std::abs(x[i] - y[i]);
    if (std::isnan(difference)) return std::numeric_limits<double>::quiet_NaN();
    largest = std::max(largest, difference);
  }
  return largest;
}

}  // namespace lockstep
