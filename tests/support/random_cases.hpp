#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <ostream>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"
#include "lockstep/observe/log.hpp"
#include "lockstep/tensor/factories.hpp"
#include "lockstep/tensor/tensor.hpp"
#include "support/closeness.hpp"
#include "support/device_array.hpp"
#include "support/place.hpp"

/// @file
/// Ops on random shapes, memory layouts and values, against naive loops in double. A test runs many
/// cases; each is made from the seed, the test's name and its number alone:
///   LOCKSTEP_RANDOM_CASES=n   how many cases each test runs (else its own count)
///   LOCKSTEP_RANDOM_SEED=s    other cases than the usual ones
///   LOCKSTEP_RANDOM_CASE=i    only this case, as named by a failure

namespace lockstep::testing {

using test::for_each_element;
using test::Values;

/// A place and a dtype: what suites of random cases run over.
struct Setting {
  Place place;
  DType dtype = DType::f32;
};

inline std::ostream& operator<<(std::ostream& out, const Setting& setting) {
  return out << setting.place << '/' << setting.dtype;
}

/// The dtypes that are no integers.
inline constexpr auto floating = {DType::f64, DType::f32, DType::bf16, DType::f16};

/// Every place of this build with each of the dtypes.
inline std::vector<Setting> settings(std::initializer_list<DType> dtypes) {
  std::vector<Setting> all;
  for (const Place& place : places())
    for (const DType dtype : dtypes) all.push_back({place, dtype});
  return all;
}

/// Names a case "onednn_bf16".
inline std::string setting_name(const ::testing::TestParamInfo<Setting>& info) {
  return std::string(info.param.place.backend) + "_" + std::string(name(info.param.dtype));
}

/// A tensor with a random layout, and its values in row-major order.
struct RandomTensor {
  Tensor tensor;
  Values values;

  operator const Tensor&() const { return tensor; }
  const Shape& shape() const { return tensor.shape(); }
};

/// The tensor as a leaf whose gradient backward computes.
inline Tensor leaf(const RandomTensor& from) {
  Tensor result = from.tensor.detach();
  result.set_requires_grad();
  return result;
}

/// The uniform range of a tensor's values.
struct Range {
  double low = -1, high = 1;
};

/// One case: draws shapes, layouts and values, and remembers what it drew for messages.
class RandomCase {
 public:
  RandomCase(std::uint64_t seed, const Setting& setting) : engine_(seed), setting_(setting) {}

  const Setting& setting() const { return setting_; }

  /// Uniform in [low, high], both included.
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    const auto span = static_cast<std::uint64_t>(high - low) + 1;
    return low + static_cast<std::int64_t>(engine_() % span);
  }
  bool chance(double probability) { return real() < probability; }
  double real(double low = 0, double high = 1) {
    return low + (high - low) * std::ldexp(static_cast<double>(engine_() >> 11), -53);
  }
  template <class T>
  T choose(std::initializer_list<T> from) {
    return from.begin()[integer(0, static_cast<std::int64_t>(from.size()) - 1)];
  }

  /// An extent from 1 to `high`: small ones, and neighbours of multiples of 8, more often than
  /// others. Rarely 0, where `empty` allows.
  std::int64_t extent(std::int64_t high, bool empty = true) {
    if (empty && chance(0.01)) return 0;
    switch (integer(0, 3)) {
      case 0: return integer(1, std::min<std::int64_t>(high, 4));
      case 1:
        return std::clamp<std::int64_t>(8 * integer(1, 1 + high / 8) + integer(-1, 1), 1, high);
      default: return integer(1, high);
    }
  }
  /// A shape of random extents with at most `most` elements.
  Shape shape(int rank, std::int64_t high, std::int64_t most = 4096, bool empty = true) {
    Shape result;
    for (int d = 0; d < rank; ++d) {
      const std::int64_t left = most / std::max<std::int64_t>(numel(result), 1);
      result.push_back(extent(std::clamp<std::int64_t>(left, 1, high), empty));
    }
    return result;
  }
  /// A shape that broadcasts to `to`: some extents are 1, some leading dimensions missing.
  Shape broadcastable(const Shape& to) {
    const auto skipped = chance(0.3) ? integer(0, to.size()) : 0;
    Shape result;
    for (auto d = static_cast<int>(skipped); d < to.size(); ++d)
      result.push_back(chance(0.3) ? 1 : to[d]);
    return result;
  }

  /// Values in a random layout: any order of the dimensions in memory, gaps between elements, rows
  /// and planes, an offset, extents that are repeated by a stride of 0. Gaps hold NaN (integers:
  /// their largest value), so that a kernel that reads them is found out.
  RandomTensor tensor(const Shape& shape, DType dtype, Range range = {}) {
    const bool plain = chance(0.3);
    std::vector<Axis> axes;
    for (int d = 0; d < shape.size(); ++d) axes.push_back(plain ? Axis{shape[d]} : axis(shape[d]));
    Dims order = ascending(shape.size());  // of the dimensions in memory
    if (!plain && chance(0.5)) std::shuffle(order.begin(), order.end(), engine_);
    return fill(shape, axes, order, dtype, range);
  }
  /// The same in the setting's dtype.
  RandomTensor tensor(const Shape& shape, Range range = {}) {
    return tensor(shape, setting_.dtype, range);
  }
  /// An image [N, C, H, W] in one of the two orders of memory that every kernel takes.
  RandomTensor image(const Shape& shape, DType dtype, Range range = {}) {
    const Dims order = chance(0.5) ? Dims{0, 1, 2, 3} : Dims{0, 2, 3, 1};
    return fill(shape, dense(shape), order, dtype, range);
  }
  /// A row-major tensor.
  RandomTensor contiguous(const Shape& shape, DType dtype, Range range = {}) {
    return fill(shape, dense(shape), ascending(shape.size()), dtype, range);
  }

  /// Adds to what a failure tells of the case.
  template <class... Args>
  void note(const Args&... args) {
    ((notes_ << args), ...) << "; ";
  }
  std::string notes() const { return notes_.str(); }

 private:
  /// How one dimension lies in memory.
  struct Axis {
    std::int64_t extent, step = 1, before = 0, after = 0;
    bool repeated = false;  ///< stride 0

    std::int64_t room() const {
      if (repeated) return std::min<std::int64_t>(extent, 1);
      return before + (extent == 0 ? 0 : (extent - 1) * step + 1) + after;
    }
  };
  Axis axis(std::int64_t extent) {
    Axis result{extent};
    if (chance(0.1)) result.repeated = true;
    if (result.repeated) return result;
    if (chance(0.15)) result.step = integer(2, 3);
    if (chance(0.2)) result.before = integer(1, 3);
    if (chance(0.2)) result.after = integer(1, 3);
    return result;
  }
  static std::vector<Axis> dense(const Shape& shape) {
    std::vector<Axis> axes;
    for (const std::int64_t extent : shape) axes.push_back({extent});
    return axes;
  }
  static Dims ascending(int count) {
    Dims result;
    for (int d = 0; d < count; ++d) result.push_back(d);
    return result;
  }

  RandomTensor fill(const Shape& shape, const std::vector<Axis>& axes, const Dims& order,
                    DType dtype, Range range) {
    Shape room;
    Dims back = order;
    for (int i = 0; i < order.size(); ++i) {
      room.push_back(axes[static_cast<std::size_t>(order[i])].room());
      back[static_cast<int>(order[i])] = i;
    }
    const Tensor memory = empty(room, {.dtype = dtype});
    Values drawn(static_cast<std::size_t>(memory.numel()));
    for (double& value : drawn) value = real(range.low, range.high);
    const auto view_of = [&](const Tensor& all) {
      Tensor view = all.permute(back);
      for (int d = 0; d < shape.size(); ++d) {
        const Axis& a = axes[static_cast<std::size_t>(d)];
        if (!a.repeated && a.room() != a.extent)
          view = view.slice(d, a.before, a.before + (a.room() - a.before - a.after), a.step);
      }
      return view.expand(shape);
    };
    const Tensor view = view_of(memory);
    RandomTensor result{{}, Values(static_cast<std::size_t>(view.numel()))};
    dispatch_all(dtype, "fill", [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* const all = memory.data<T>();
      T* const first = view.data<T>();
      std::fill_n(all, memory.numel(), gap<T>());
      for_each_element(view.shape(), view.strides(), [&](std::size_t i, std::size_t at) {
        first[at] = rounded<T>(drawn[static_cast<std::size_t>(first - all) + at]);
        result.values[i] = as_double(first[at]);
      });
    });
    result.tensor = view_of(memory.to(setting_.place.device));
    note(dtype, ' ', shape, " strides ", result.tensor.strides());
    return result;
  }
  template <class T>
  static T gap() {
    if constexpr (is_floating_type<T>)
      return rounded<T>(std::numeric_limits<double>::quiet_NaN());
    else
      return std::numeric_limits<T>::max();
  }
  template <class T>
  static T rounded(double value) {
    if constexpr (is_floating_type<T> && !std::is_same_v<T, double>)
      return T(static_cast<float>(value));
    else if constexpr (std::is_same_v<T, bool>)
      return value >= 0.5;
    else
      return static_cast<T>(value);
  }
  template <class T>
  static double as_double(T value) {
    if constexpr (is_floating_type<T> && !std::is_same_v<T, double>)
      return static_cast<float>(value);
    else
      return static_cast<double>(value);
  }

  std::mt19937_64 engine_;
  Setting setting_;
  std::ostringstream notes_;
};

/// What naive loops make of a case: values, and what rounding errors are measured against, the sum
/// of the magnitudes of the terms of each.
struct Expected {
  Values values, magnitudes;

  Expected() = default;
  explicit Expected(std::int64_t count)
      : values(static_cast<std::size_t>(count)), magnitudes(values) {}
  /// Adds a term to the element at `index`.
  void add(std::int64_t index, double term) {
    values[static_cast<std::size_t>(index)] += term;
    magnitudes[static_cast<std::size_t>(index)] += std::abs(term);
  }
};

/// Error that sums of `terms` may have, relative to the magnitude of the terms: they are held in
/// f32 (f64 for f64) and rounded to the dtype once.
inline double sum_tolerance(DType dtype, double terms) {
  const double held = test::rounding(dtype == DType::f64 ? DType::f64 : DType::f32);
  return 2 * test::rounding(dtype) + 4 * held * (4 + terms);
}

/// Passes if the tensor has the shape, and no element is off by more than `tolerance` times its
/// magnitude.
inline ::testing::AssertionResult agrees(const Tensor& actual, const Shape& shape,
                                         const Expected& expected, double tolerance) {
  const double subnormal = actual.dtype() == DType::f16 ? 0x1p-24 : 1e-37;
  if (!(actual.shape() == shape))
    return ::testing::AssertionFailure() << "shape " << actual.shape() << ", expected " << shape;
  const Values values = actual.to(cpu).to(DType::f64).contiguous().to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double want = expected.values[i];
    const double allowed = tolerance * expected.magnitudes[i] + subnormal;
    if (values[i] == want || (std::isnan(values[i]) && std::isnan(want))) continue;
    if (!(std::abs(values[i] - want) <= allowed))
      return ::testing::AssertionFailure()
             << "element " << i << " of " << shape << " is " << values[i] << ", expected " << want
             << " (allowed " << allowed << ")";
  }
  return ::testing::AssertionSuccess();
}

/// Base of suites of random cases: ops run on the setting's place.
class RandomCases : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (is_missing(GetParam().place)) GTEST_SKIP() << "no CUDA device on this machine";
  }
  DType dtype() const { return GetParam().dtype; }

  /// Runs `body(case)` for many cases, and stops after the third that fails. A GPU, which may be a
  /// simulated one, runs a twentieth of them.
  template <class Body>
  void run_cases(std::int64_t count, Body&& body) {
    const PlaceScope scope(GetParam().place);
    if (GetParam().place.device.is_cuda()) count = (count + 19) / 20;
    count = number("LOCKSTEP_RANDOM_CASES", count);
    const std::int64_t seed = number("LOCKSTEP_RANDOM_SEED", 1);
    const std::int64_t only = number("LOCKSTEP_RANDOM_CASE", -1);
    const std::string_view suite =
        ::testing::UnitTest::GetInstance()->current_test_info()->test_suite_name();
    std::uint64_t first = 14695981039346656037u;
    for (const char c : suite) first = (first ^ static_cast<unsigned char>(c)) * 1099511628211u;
    first += static_cast<std::uint64_t>(seed) * 0x9E3779B97F4A7C15u;
    int failed = 0;
    for (std::int64_t i = std::max<std::int64_t>(only, 0); i < (only < 0 ? count : only + 1); ++i) {
      RandomCase each(first + static_cast<std::uint64_t>(i), GetParam());
      if (!passes(body, each)) {
        ADD_FAILURE() << "LOCKSTEP_RANDOM_SEED=" << seed << " LOCKSTEP_RANDOM_CASE=" << i << ": "
                      << each.notes();
        if (++failed == 3) break;
      }
    }
  }

 private:
  static std::int64_t number(const char* variable, std::int64_t fallback) {
    const char* text = std::getenv(variable);
    return text && *text ? std::atoll(text) : fallback;
  }
  /// An exception is a failure of the case, which is named then too; so is a warning in the log, by
  /// which a backend tells of a problem that it did not expect. That cuDNN lacks an engine for odd
  /// sizes is expected.
  template <class Body>
  static bool passes(Body&& body, RandomCase& each) {
    std::string logged;
    set_log_sink([&](std::string_view line) {
      if (line.find("cuDNN has no engine") == std::string_view::npos) logged.append(line);
    });
    const auto reset = std::shared_ptr<void>(nullptr, [](void*) { set_log_sink(nullptr); });
    try {
      const ::testing::AssertionResult result = body(each);
      if (result && logged.empty()) return true;
      ADD_FAILURE() << result.message() << logged;
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    return false;
  }
};

}  // namespace lockstep::testing
