#include <cmath>

#include "lockstep/autograd/ops/indexing.hpp"
#include "lockstep/autograd/ops/norm.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
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
    if (!c.chance(0.3)) return check_moved(c, table, input, embedding(index, input), to, source);
    Shape end = to;
    for (auto left = c.integer(0, of_index.size()); left > 0; --left) end.erase(0);
    c.note("added to ", end);
    const RandomTensor addend = c.tensor(end);
    Expected y(numel(to));
    for (std::int64_t i = 0; i < numel(to); ++i) {
      y.add(i, at(table.values, source[static_cast<std::size_t>(i)]));
      y.add(i, at(addend.values, i % numel(end)));
    }
    const Tensor output = add_embedding(addend, index, input);
    if (auto r = agrees(output, to, y, sum_tolerance(c.setting().dtype, 2)); !r) return r;
    return check_gradient(c, input, output, source);
  }

  static AssertionResult check_scatter_add(RandomCase& c) {
    const Shape shape = c.shape(static_cast<int>(c.integer(1, 4)), 20, 400);
    Shape of_index = shape, of_source = shape;
    const auto d = static_cast<int>(c.integer(0, shape.size() - 1));
    for (int i = 0; i < shape.size(); ++i) {
      of_index[i] = i == d ? c.extent(20) : c.integer(0, shape[i]);
      if (shape[d] == 0) of_index[d] = 0;
      of_source[i] = of_index[i] + (c.chance(0.2) ? c.integer(0, 3) : 0);
    }
    c.note("scatter_add along ", d);
    const RandomTensor x = c.tensor(shape, {0, 4}), source = c.tensor(of_source, {0, 4});
    const RandomTensor index = indices(c, of_index, std::max<std::int64_t>(shape[d], 1));
    Expected y(numel(shape));
    for (std::size_t i = 0; i < x.values.size(); ++i)
      y.add(static_cast<std::int64_t>(i), x.values[i]);
    std::vector<std::int64_t> from, to;  // positions in the source and in the result
    for (std::int64_t i = 0; i < numel(of_index); ++i) {
      const Dims at_index = index_of(i, of_index);
      Dims target = at_index;
      target[d] = static_cast<std::int64_t>(at(index.values, i));
      from.push_back(position_of(at_index, of_source));
      to.push_back(position_of(target, shape));
      y.add(to.back(), at(source.values, from.back()));
    }
    const DType dtype = c.setting().dtype;
    if (dtype == DType::u8)
      for (double& value : y.values) value = std::fmod(value, 256);
    const double allowed =
        is_floating(dtype) ? sum_tolerance(dtype, static_cast<double>(numel(of_index))) : 0;
    if (!is_floating(dtype)) return agrees(scatter_add(x, d, index, source), shape, y, allowed);
    const Tensor input = leaf(x), added = leaf(source);
    const Tensor output = scatter_add(input, d, index, added);
    if (auto r = agrees(output, shape, y, allowed); !r) return r;
    const RandomTensor dy = c.tensor(shape);
    Expected dsource(numel(of_source));
    for (std::size_t i = 0; i < from.size(); ++i) dsource.add(from[i], at(dy.values, to[i]));
    output.backward(dy);
    if (auto r = agrees(input.grad(), shape, exactly(dy.values), 0); !r) return r << ": gradient";
    return agrees(added.grad(), of_source, dsource, 0) << ": gradient of the source";
  }

  static AssertionResult check_masked_fill(RandomCase& c) {
    const Shape most = c.shape(static_cast<int>(c.integer(0, 4)), 20, 600);
    const RandomTensor x = c.tensor(c.broadcastable(most), {0, 100});
    const RandomTensor mask = c.tensor(c.broadcastable(most), DType::boolean, {0, 1});
    const Shape shape = broadcast_shapes(x.shape(), mask.shape());
    const bool truth = c.setting().dtype == DType::boolean;
    c.note("masked_fill");
    Values y;
    for (std::int64_t i = 0; i < numel(shape); ++i) {
      const Dims index = index_of(i, shape);
      const bool filled = at(mask.values, broadcast_position(index, mask.shape())) != 0;
      y.push_back(filled ? (truth ? 1 : 3) : at(x.values, broadcast_position(index, x.shape())));
    }
    if (auto r = agrees(masked_fill(x, mask, 3.0), shape, exactly(y), 0); !r) return r;
    if (!(x.shape() == shape)) return AssertionSuccess();
    Tensor changed = x.tensor.clone();
    return agrees(changed.masked_fill_(mask, 3.0), shape, exactly(y), 0) << ": in place";
  }

  static AssertionResult check_index_add(RandomCase& c) {
    const Shape shape = c.shape(static_cast<int>(c.integer(1, 4)), 20, 400);
    const auto d = static_cast<int>(c.integer(0, shape.size() - 1));
    Shape of_source = shape;
    of_source[d] = shape[d] == 0 ? 0 : c.extent(20);
    // A factor that no dtype rounds.
    const double alpha = c.chance(0.5) ? 1 : 2;
    c.note("index_add along ", d, " alpha ", alpha);
    const RandomTensor x = c.tensor(shape, {0, 4}), source = c.tensor(of_source, {0, 4});
    const RandomTensor index = indices(c, {of_source[d]}, std::max<std::int64_t>(shape[d], 1));
    Expected y(numel(shape));
    for (std::size_t i = 0; i < x.values.size(); ++i)
      y.add(static_cast<std::int64_t>(i), x.values[i]);
    std::vector<std::int64_t> to;
    for (std::int64_t i = 0; i < numel(of_source); ++i) {
      Dims target = index_of(i, of_source);
      target[d] = static_cast<std::int64_t>(at(index.values, target[d]));
      to.push_back(position_of(target, shape));
      y.add(to.back(), alpha * at(source.values, i));
    }
    const DType dtype = c.setting().dtype;
    if (dtype == DType::u8)
      for (double& value : y.values) value = std::fmod(value, 256);
    if (!is_floating(dtype)) return agrees(index_add(x, d, index, source, alpha), shape, y, 0);
    const double allowed = sum_tolerance(dtype, static_cast<double>(numel(of_source)));
    const Tensor input = leaf(x), added = leaf(source);
    const Tensor output = index_add(input, d, index, added, alpha);
    if (auto r = agrees(output, shape, y, allowed); !r) return r;
    const RandomTensor dy = c.tensor(shape);
    Values dsource;
    for (const auto position : to) dsource.push_back(alpha * at(dy.values, position));
    output.backward(dy);
    if (auto r = agrees(input.grad(), shape, exactly(dy.values), 0); !r) return r << ": gradient";
    return agrees(added.grad(), of_source, exactly(dsource), 0) << ": gradient of the source";
  }

  static AssertionResult check_scatter(RandomCase& c) {
    const Shape shape = c.shape(static_cast<int>(c.integer(1, 4)), 20, 400);
    Shape of_index = shape;
    const auto d = static_cast<int>(c.integer(0, shape.size() - 1));
    for (int i = 0; i < shape.size(); ++i)
      of_index[i] = i == d ? c.extent(20) : c.integer(0, shape[i]);
    if (shape[d] == 0) of_index[d] = 0;
    c.note("scatter along ", d);
    const RandomTensor x = c.tensor(shape, {0, 100});
    const RandomTensor index = indices(c, of_index, std::max<std::int64_t>(shape[d], 1));
    Values y = x.values;
    std::vector<bool> written(y.size());
    for (std::int64_t i = 0; i < numel(of_index); ++i) {
      Dims target = index_of(i, of_index);
      target[d] = static_cast<std::int64_t>(at(index.values, i));
      const auto to = static_cast<std::size_t>(position_of(target, shape));
      y[to] = 3;
      written[to] = true;
    }
    const bool recorded = is_floating(c.setting().dtype);
    const Tensor input = recorded ? leaf(x) : x.tensor, output = scatter(input, d, index, 3);
    if (auto r = agrees(output, shape, exactly(y), 0); !r || !recorded) return r;
    const RandomTensor dy = c.tensor(shape);
    Values dx = dy.values;
    for (std::size_t i = 0; i < dx.size(); ++i)
      if (written[i]) dx[i] = 0;
    output.backward(dy);
    if (auto r = agrees(input.grad(), shape, exactly(dx), 0); !r) return r << ": the gradient";
    return check_scattered_source(c, d, x, index, dy);
  }

  /// Elements of a source in the place of a number; the index may be shorter.
  static AssertionResult check_scattered_source(RandomCase& c, int d, const RandomTensor& x,
                                                const RandomTensor& index, const RandomTensor& dy) {
    const Shape shape = x.shape(), of_index = index.shape();
    Shape of_source = of_index;
    for (int i = 0; i < of_source.size(); ++i) of_source[i] += c.integer(0, 2);
    const RandomTensor source = c.tensor(of_source, {0, 100});
    Values y = x.values, dx = dy.values, dsource(static_cast<std::size_t>(numel(of_source)));
    for (std::int64_t i = 0; i < numel(of_index); ++i) {
      const Dims from = index_of(i, of_index);
      Dims target = from;
      target[d] = static_cast<std::int64_t>(at(index.values, i));
      const auto to = static_cast<std::size_t>(position_of(target, shape));
      const auto read = static_cast<std::size_t>(position_of(from, of_source));
      y[to] = source.values[read];
      dx[to] = 0;
      dsource[read] = dy.values[to];
    }
    const Tensor input = leaf(x), given = leaf(source), output = scatter(input, d, index, given);
    if (auto r = agrees(output, shape, exactly(y), 0); !r) return r << ": of a source";
    output.backward(dy);
    if (auto r = agrees(input.grad(), shape, exactly(dx), 0); !r) return r << ": its gradient";
    return agrees(given.grad(), of_source, exactly(dsource), 0) << ": gradient of the source";
  }

  /// masked_select and nonzero.
  static AssertionResult check_chosen(RandomCase& c) {
    const Shape most = c.shape(static_cast<int>(c.integer(0, 4)), 20, 600);
    const RandomTensor x = c.tensor(c.broadcastable(most), {0, 100});
    const RandomTensor mask = c.tensor(c.broadcastable(most), DType::boolean, {0, 1});
    const Shape shape = broadcast_shapes(x.shape(), mask.shape());
    c.note("masked_select and nonzero");
    std::vector<std::int64_t> source;
    for (std::int64_t i = 0; i < numel(shape); ++i) {
      const Dims index = index_of(i, shape);
      if (at(mask.values, broadcast_position(index, mask.shape())) != 0)
        source.push_back(broadcast_position(index, x.shape()));
    }
    const Tensor input = is_floating(c.setting().dtype) ? leaf(x) : x.tensor;
    const Tensor output = masked_select(input, mask);
    if (auto r =
            check_moved(c, x, input, output, {static_cast<std::int64_t>(source.size())}, source);
        !r)
      return r << ": masked_select";
    const RandomTensor few = c.tensor(most, {0, 2});
    const Tensor whole = is_floating(c.setting().dtype) ? trunc(few.tensor) : few.tensor;
    Values places;
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < numel(most); ++i) {
      if (std::trunc(at(few.values, i)) == 0) continue;
      ++count;
      for (const auto each : index_of(i, most)) places.push_back(static_cast<double>(each));
    }
    return agrees(nonzero(whole), {count, most.size()}, exactly(places), 0) << ": nonzero";
  }

  /// one_hot and bincount: of i64 alone.
  static AssertionResult check_classes(RandomCase& c) {
    const std::int64_t classes = c.extent(12, false);
    const Shape shape = c.shape(static_cast<int>(c.integer(0, 3)), 10, 60);
    const RandomTensor index = indices(c, shape, classes);
    Shape to = shape;
    to.push_back(classes);
    c.note("one_hot and bincount");
    Values y(static_cast<std::size_t>(numel(to))), counts(static_cast<std::size_t>(classes));
    for (std::int64_t i = 0; i < numel(shape); ++i) {
      const auto hit = static_cast<std::int64_t>(at(index.values, i));
      y[static_cast<std::size_t>(i * classes + hit)] = 1;
      counts[static_cast<std::size_t>(hit)] += 1;
    }
    if (auto r = agrees(one_hot(index, classes), to, exactly(y), 0); !r) return r << ": one_hot";
    return agrees(bincount(index.tensor.reshape({-1}), classes), {classes}, exactly(counts), 0)
           << ": bincount";
  }

  static AssertionResult check_case(RandomCase& c) {
    const DType dtype = c.setting().dtype;
    const bool numeric = dtype != DType::boolean;
    switch (c.integer(0, 8)) {
      case 5: return numeric ? check_index_add(c) : check_chosen(c);
      case 6: return numeric ? check_scatter(c) : check_chosen(c);
      case 7: return check_chosen(c);
      case 8: return dtype == DType::i64 ? check_classes(c) : check_chosen(c);
      case 0: return check_gather(c);
      case 1: return check_select(c);
      case 2: return check_masked_fill(c);
      case 3: return dtype == DType::boolean ? check_gather(c) : check_scatter_add(c);
      default: return is_floating(dtype) ? check_embedding(c) : check_select(c);
    }
  }
};

TEST_P(RandomIndex, AgreesWithLoops) { run_cases(180, check_case); }
TEST_P(RandomIndex, SlowAgreesWithLoops) { run_cases(10000, check_case); }

INSTANTIATE_TEST_SUITE_P(Backends, RandomIndex,
                         ::testing::ValuesIn(settings({DType::f64, DType::f32, DType::bf16,
                                                       DType::f16, DType::i64, DType::i32,
                                                       DType::u8, DType::boolean})),
                         setting_name);

}  // namespace
}  // namespace lockstep::testing
