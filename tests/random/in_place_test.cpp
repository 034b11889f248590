#include <set>

#include "random/naive.hpp"

// In-place ops on views of one array: which are refused, and what the others write.

namespace lockstep::testing {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

/// Where each element of a view lies, in elements from the start of the base.
std::vector<std::int64_t> places(const Tensor& view, const Tensor& base) {
  const auto bytes = static_cast<const std::byte*>(view.data_ptr()) -
                     static_cast<const std::byte*>(base.data_ptr());
  const std::int64_t first = bytes / static_cast<std::int64_t>(size_of(base.dtype()));
  std::vector<std::int64_t> all(static_cast<std::size_t>(view.numel()));
  for_each_element(view.shape(), view.strides(), [&](std::size_t i, std::size_t offset) {
    all[i] = first + static_cast<std::int64_t>(offset);
  });
  return all;
}

/// A window of the base with two dimensions of extents n and m, or less where it does not fit.
Tensor window(RandomCase& c, const Tensor& base, std::int64_t n, std::int64_t m) {
  const Tensor order = c.chance(0.5) ? base : base.transpose(0, 1);
  const auto cut = [&](const Tensor& x, int d, std::int64_t extent) {
    const std::int64_t step = c.integer(1, 2), room = (extent - 1) * step + 1;
    if (room > x.size(d)) return x.slice(d, 0, extent);
    const std::int64_t start = c.integer(0, x.size(d) - room);
    return x.slice(d, start, start + room, step);
  };
  return cut(cut(order, 0, n), 1, m);
}

/// An op that writes a op b to a.
struct InPlaceOp {
  const char* name;
  void (*with_tensor)(Tensor& a, const Tensor& b);
  void (*with_number)(Tensor& a, double b);
  double (*value)(double a, double b);
};
constexpr InPlaceOp in_place_ops[] = {
    {"copy_", [](Tensor& a, const Tensor& b) { a.copy_(b); },
     [](Tensor& a, double b) { a.fill_(b); }, [](double, double b) { return b; }},
    {"add_", [](Tensor& a, const Tensor& b) { a.add_(b); }, [](Tensor& a, double b) { a.add_(b); },
     [](double a, double b) { return a + b; }},
    {"sub_", [](Tensor& a, const Tensor& b) { a.sub_(b); }, [](Tensor& a, double b) { a.sub_(b); },
     [](double a, double b) { return a - b; }},
    {"mul_", [](Tensor& a, const Tensor& b) { a.mul_(b); }, [](Tensor& a, double b) { a.mul_(b); },
     [](double a, double b) { return a * b; }},
    {"div_", [](Tensor& a, const Tensor& b) { a.div_(b); }, [](Tensor& a, double b) { a.div_(b); },
     [](double a, double b) { return a / b; }},
};

class RandomInPlace : public RandomCases {
 protected:
  static AssertionResult check_case(RandomCase& c) {
    const DType dtype = c.setting().dtype;
    const std::int64_t rows = c.integer(1, 9), columns = c.integer(1, 9);
    const RandomTensor x = c.contiguous({rows, columns}, dtype, {0, 9});
    if (c.chance(0.2)) return check_number(c, x);
    const std::int64_t n = c.integer(1, std::min(rows, columns)), m = c.integer(1, n);
    Tensor to = window(c, x.tensor, n, m);
    const Tensor from = window(c, x.tensor, c.chance(0.8) ? n : 1, m);
    const InPlaceOp& op = in_place_ops[c.integer(0, last_op(dtype))];
    c.note(op.name, " to ", to.shape(), to.strides(), " from ", from.shape(), from.strides());
    const std::vector<std::int64_t> written = places(to, x.tensor);
    const std::vector<std::int64_t> read = places(from.expand(to.shape()), x.tensor);
    const std::set<std::int64_t> changed(written.begin(), written.end());
    bool meets = false;
    for (const auto place : read) meets |= changed.contains(place);
    const bool refused = meets && read != written;
    Values expected = x.values;
    for (std::size_t i = 0; i < written.size() && !refused; ++i)
      expected[static_cast<std::size_t>(written[i])] =
          op.value(at(x.values, written[i]), at(x.values, read[i]));
    try {
      op.with_tensor(to, from);
      if (refused) return AssertionFailure() << "overlapping views were not refused";
    } catch (const InvalidArgument& error) {
      if (!refused) return AssertionFailure() << error.what();
    }
    return agrees(x.tensor, x.shape(), rounded(c, expected), 1);
  }

 private:
  /// Integers have no quotient in place.
  static std::int64_t last_op(DType dtype) {
    return static_cast<std::int64_t>(std::size(in_place_ops)) - (is_floating(dtype) ? 1 : 2);
  }
  static Expected rounded(const RandomCase& c, const Values& values) {
    const DType dtype = c.setting().dtype;
    Expected expected = exactly(values);
    for (std::size_t i = 0; i < values.size() && is_floating(dtype); ++i)
      expected.magnitudes[i] = std::abs(values[i]) * test::rounding(dtype);
    return expected;
  }
  /// A window beside a number.
  static AssertionResult check_number(RandomCase& c, const RandomTensor& x) {
    const InPlaceOp& op = in_place_ops[c.integer(0, last_op(c.setting().dtype))];
    Tensor to = window(c, x.tensor, c.integer(1, x.shape()[0]), c.integer(1, x.shape()[0]));
    const auto number = static_cast<double>(c.integer(1, 5));
    c.note(op.name, " with ", number, " to ", to.shape(), to.strides());
    Values expected = x.values;
    for (const auto place : places(to, x.tensor)) {
      double& value = expected[static_cast<std::size_t>(place)];
      value = op.value(value, number);
    }
    op.with_number(to, number);
    return agrees(x.tensor, x.shape(), rounded(c, expected), 1);
  }
};

TEST_P(RandomInPlace, WritesOrRefusesAsLoopsSay) { run_cases(150, check_case); }
TEST_P(RandomInPlace, SlowWritesOrRefusesAsLoopsSay) { run_cases(10000, check_case); }

INSTANTIATE_TEST_SUITE_P(Backends, RandomInPlace,
                         ::testing::ValuesIn(settings({DType::f64, DType::bf16, DType::i32})),
                         setting_name);

}  // namespace
}  // namespace lockstep::testing
