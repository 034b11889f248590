#include "lockstep/autograd/ops/norm.hpp"
#include "lockstep/autograd/ops/shape.hpp"
#include "random/naive.hpp"

// Ops that take an index tensor, on random shapes and memory layouts, against loops.

namespace lockstep::testing {
namespace {

using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

/// Random positions below `extent`, which is at least 1.
RandomTensor indices(RandomCase& c, const Shape& shape, std::int64_t extent) {
  return c.tensor(shape, DType::i64, {0, static_cast<double>(extent)});
}

/// Backward of an op that moves elements, each to where `moved_to` says it came from.
AssertionResult check_gradient(RandomCase& c, const Tensor& input, const Tensor& output,
                               const std::vector<std::int64_t>& source) {
  if (!is_floating(c.setting().dtype)) return AssertionSuccess();
  const RandomTensor dy = c.tensor(output.shape());
  Expected dx(input.numel());
  for (std::size_t i = 0; i < source.size(); ++i) dx.add(source[i], dy.values[i]);
  output.backward(dy);
  const double allowed = sum_tolerance(c.setting().dtype, static_cast<double>(output.numel()));
  return agrees(input.grad(), input.shape(), dx, allowed) << ": the gradient";
}

AssertionResult check_moved(RandomCase& c, const RandomTensor& x, const Tensor& input,
                            const Tensor& output, const Shape& shape,
                            const std::vector<std::int64_t>& source) {
  Values y;
  for (const auto from : source) y.push_back(at(x.values, from));
  if (auto r = agrees(output, shape, exactly(y), 0); !r) return r;
  return check_gradient(c, input, output, source);
}

class RandomIndex : public RandomCases {
 protected:
  static AssertionResult check_gather(RandomCase& c) {
    Shape shape = c.shape(static_cast<int>(c.integer(1, 4)), 20, 600), of_index = shape;
    const auto d = static_cast<int>(c.integer(0, shape.size() - 1));
    for (int i = 0; i < shape.size(); ++i)
      of_index[i] = i == d ? c.extent(20) : c.integer(0, shape[i]);
    if (shape[d] == 0) of_index[d] = 0;
    c.note("gather along ", d);
    const RandomTensor x = c.tensor(shape, {0, 100});
    const RandomTensor index = indices(c, of_index, std::max<std::int64_t>(shape[d], 1));
    std::vector<std::int64_t> source;
    for (std::int64_t i = 0; i < numel(of_index); ++i) {
      Dims from = index_of(i, of_index);
      from[d] = static_cast<std::int64_t>(at(index.values, i));
      source.push_back(position_of(from, shape));
    }
    const Tensor input = is_floating(x.tensor.dtype()) ? leaf(x) : x.tensor;
    return check_moved(c, x, input, gather(input, d, index), of_index, source);
  }

  static AssertionResult check_select(RandomCase& c) {
    Shape shape = c.shape(static_cast<int>(c.integer(1, 4)), 20, 600), to = shape;
    const auto d = static_cast<int>(c.integer(0, shape.size() - 1));
    to[d] = shape[d] == 0 ? 0 : c.extent(20);
    c.note("index_select along ", d);
    const RandomTensor x = c.tensor(shape, {0, 100});
    const RandomTensor index = indices(c, {to[d]}, std::max<std::int64_t>(shape[d], 1));
    std::vector<std::int64_t> source;
    for (std::int64_t i = 0; i < numel(to); ++i) {
      Dims from = index_of(i, to);
      from[d] = static_cast<std::int64_t>(at(index.values, from[d]));
      source.push_back(position_of(from, shape));
    }
    const Tensor input = is_floating(x.tensor.dtype()) ? leaf(x) : x.tensor;
    return check_moved(c, x, input, index_select(input, d, index), to, source);
  }

  static AssertionResult check_embedding(RandomCase& c) {
    const Shape of_index = c.shape(static_cast<int>(c.integer(0, 3)), 8, 60);
    const std::int64_t rows = c.extent(20, false), columns = c.extent(40);
    c.note("embedding");
    const RandomTensor table = c.tensor({rows, columns});
    const RandomTensor index = indices(c, of_index, rows);
    Shape to = of_index;
    to.push_back(columns);
    std::vector<std::int64_t> source;
    for (std::int64_t i = 0; i < numel(to); ++i)
      source.push_back(static_cast<std::int64_t>(at(index.values, i / columns)) * columns +
                       i % columns);
    const Tensor input = leaf(table);
    return check_moved(c, table, input, embedding(index, input), to, source);
  }

  static AssertionResult check_case(RandomCase& c) {
    const auto which = c.integer(0, is_floating(c.setting().dtype) ? 2 : 1);
    return which == 0 ? check_gather(c) : (which == 1 ? check_select(c) : check_embedding(c));
  }
};

TEST_P(RandomIndex, AgreesWithLoops) { run_cases(100, check_case); }
TEST_P(RandomIndex, SlowAgreesWithLoops) { run_cases(10000, check_case); }

INSTANTIATE_TEST_SUITE_P(Backends, RandomIndex,
                         ::testing::ValuesIn(settings({DType::f64, DType::f32, DType::bf16,
                                                       DType::f16, DType::i64, DType::i32,
                                                       DType::u8, DType::boolean})),
                         setting_name);

}  // namespace
}  // namespace lockstep::testing
