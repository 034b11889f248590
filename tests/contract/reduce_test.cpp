#include "arguments/elementwise.hpp"
#include "arguments/reduction.hpp"
#include "contract/backends.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::test {
namespace {

class ReduceContract : public ContractTest {
 protected:
  static Values fold(ReduceOp op, const Shape& shape, const Shape& to, const Values& in) {
    const bool largest = op == ReduceOp::amax, smallest = op == ReduceOp::amin;
    const bool product = op == ReduceOp::prod;
    const double start = largest ? -INFINITY : (smallest ? INFINITY : (product ? 1.0 : 0.0));
    Values out(static_cast<std::size_t>(numel(to)), start);
    Strides strides = contiguous_strides(to);
    for (int d = 0; d < to.size(); ++d)
      if (to[d] == 1) strides[d] = 0;
    for_each_element(shape, strides, [&](std::size_t i, std::size_t at) {
      const double x = in[i];
      if (largest || smallest)
        out[at] = largest ? std::max(out[at], x) : std::min(out[at], x);
      else if (product)
        out[at] *= x;
      else
        out[at] += op == ReduceOp::square_sum ? x * x : x;
    });
    if (op == ReduceOp::mean)
      for (double& value : out)
        value *= static_cast<double>(out.size()) / static_cast<double>(in.size());
    return out;
  }

  void check(const Shape& shape, const Strides& strides, const Shape& to) {
    for (std::size_t i = 0; i < std::size(reduce_ops); ++i) {
      const auto op = static_cast<ReduceOp>(i);
      SCOPED_TRACE(traits(op).name);
      // Small enough that the sum of squares of many fits f16, and signs only for products.
      auto in = array(shape, strides).randomize(1, -0.5, 0.5);
      if (op == ReduceOp::prod) {
        Values signs = in.get();
        for (double& value : signs) value = value < 0 ? -1 : 1;
        in.set(signs);
      }
      const auto out = array(to);
      backend().reduction.reduce({.op = op, .out = out, .in = in}, stream());
      EXPECT_TRUE(close(out.get(), fold(op, shape, to, in.get()), tolerance(1024)))
          << shape << strides << " to " << to << " op " << static_cast<int>(op);
    }
  }
};

TEST_P(ReduceContract, FoldsRowsColumnsAndAll) {
  check({37, 300}, {300, 1}, {37, 1});
  check({37, 300}, {300, 1}, {1, 300});
  check({37, 300}, {300, 1}, {1, 1});
  check({37, 300}, {300, 1}, {37, 300});
  check({300, 37}, {1, 300}, {1, 37});
  check({300, 37}, {1, 300}, {300, 1});
  check({5000, 3}, {3, 1}, {1, 3});
}
TEST_P(ReduceContract, FoldsMixedDimensions) {
  check({3, 20, 6, 7}, {840, 42, 7, 1}, {1, 20, 1, 1});
  check({3, 20, 6, 7}, {840, 1, 140, 20}, {1, 20, 1, 1});
  check({3, 20, 6, 7}, {840, 42, 7, 1}, {3, 1, 6, 1});
  check({4, 9, 11}, {99, 11, 1}, {4, 1, 11});
  check({}, {}, {});
}
TEST_P(ReduceContract, FoldsManyChunks) {
  check({200000}, {1}, {1});
  check({3000, 70}, {70, 1}, {1, 70});
  check({2, 90, 1500}, {135000, 1500, 1}, {1, 1, 1500});
}

// On a CPU many rows a call, in parts, from memory or through a tile.
TEST_P(ReduceContract, FoldsManyShortRows) {
  check({150, 9}, {9, 1}, {150, 1});
  check({150, 9}, {12, 1}, {150, 1});
  check({9, 150}, {1, 9}, {1, 150});
  check({60, 40}, {80, 2}, {60, 1});
  check({2, 30, 70}, {2800, 70, 1}, {2, 30, 1});
  for (const std::int64_t terms : {1, 2, 3, 5, 17, 32, 33, 100, 512, 513})
    check({40, terms}, {terms, 1}, {40, 1});
}

// On a GPU by wide loads: a warp, a block and several blocks down each column, and rows that lie
// apart.
TEST_P(ReduceContract, AddsUpColumnsOfAlignedRows) {
  check({3, 264}, {264, 1}, {1, 264});
  check({50, 264}, {272, 1}, {1, 264});
  check({700, 72}, {72, 1}, {1, 72});
}

TEST_P(ReduceContract, MultipliesAndWidens) {
  const auto in = array({2, 3}).set({1.5, -2, 4, 0.5, 0.25, 3}), out = array({2, 1});
  backend().reduction.reduce({.op = ReduceOp::prod, .out = out, .in = in}, stream());
  EXPECT_EQ(out.get(), (Values{-12, 0.375}));
  const auto large = array({1, 3}).set({256, 256, 256}), wide = array(statistics_dtype(), {1, 1});
  backend().reduction.reduce({.op = ReduceOp::prod, .out = wide, .in = large}, stream());
  EXPECT_EQ(wide.get(), (Values{16777216}));
  backend().reduction.reduce({.op = ReduceOp::prod, .out = out, .in = array({2, 0})}, stream());
  EXPECT_EQ(out.get(), (Values{1, 1}));
}

TEST_P(ReduceContract, AccumulatesSums) {
  for (const std::int64_t columns : {10, 16}) {  // on a GPU loads of one element, and of 16 bytes
    const auto in = array({6, columns}).randomize(1), out = array({1, columns}).randomize(2);
    Values expected = fold(ReduceOp::sum, {6, columns}, {1, columns}, in.get());
    const Values before = out.get();
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
    backend().reduction.reduce({.op = ReduceOp::sum, .out = out, .in = in, .accumulate = true},
                               stream());
    EXPECT_TRUE(close(out.get(), expected, tolerance(8)));
  }
}

TEST_P(ReduceContract, KeepsSumsInTheDtypeTheyAreHeldIn) {
  const auto in = array({3, 5000}).set(Values(15000, 256.0));
  const auto out = array(statistics_dtype(), {3, 1}), all = array(statistics_dtype(), {1, 5000});
  backend().reduction.reduce({.op = ReduceOp::square_sum, .out = out, .in = in}, stream());
  EXPECT_EQ(out.get(), Values(3, 5000 * 65536.0));
  backend().reduction.reduce({.op = ReduceOp::sum, .out = all, .in = in}, stream());
  EXPECT_EQ(all.get(), Values(5000, 768.0));
}

TEST_P(ReduceContract, KeepsNanAndHandlesNoElements) {
  const auto in = array({2, 200}).randomize(1);
  Values values = in.get();
  values[150] = NAN;
  const auto poisoned = array({2, 200}).set(values), out = array({2, 1});
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::amax, ReduceOp::amin}) {
    backend().reduction.reduce({.op = op, .out = out, .in = poisoned}, stream());
    EXPECT_TRUE(std::isnan(out.get()[0]) && !std::isnan(out.get()[1]));
  }
  const auto nothing = array({2, 0});
  backend().reduction.reduce({.op = ReduceOp::sum, .out = out, .in = nothing}, stream());
  EXPECT_EQ(out.get(), (Values{0, 0}));
  EXPECT_THROW(
      backend().reduction.reduce({.op = ReduceOp::amax, .out = out, .in = nothing}, stream()),
      InvalidArgument);
}

TEST_P(ReduceContract, ThreadCountChangesNoBit) {
  const auto in = array({700, 300}).randomize(1);
  const auto run = [&](int threads) {
    const int before = num_threads();
    set_num_threads(threads);
    const auto all = array({1, 1}), columns = array({1, 300}), rows = array({700, 1});
    for (const auto* out : {&all, &columns, &rows})
      backend().reduction.reduce({.op = ReduceOp::sum, .out = *out, .in = in}, stream());
    set_num_threads(before);
    return std::tuple(all.get(), columns.get(), rows.get());
  };
  EXPECT_EQ(run(1), run(3));
}

TEST_P(ReduceContract, FindsExtremes) {
  const auto in = array({2, 4}).set({1, 5, 5, 2, -3, -8, 0, -8});
  const auto out = array(DType::i64, {2, 1});
  backend().reduction.arg_extreme({.out = out, .in = in, .dim = 1, .largest = true}, stream());
  EXPECT_EQ(out.get(), (Values{1, 2}));
  backend().reduction.arg_extreme({.out = out, .in = in, .dim = 1, .largest = false}, stream());
  EXPECT_EQ(out.get(), (Values{0, 1}));
  const auto values = array({2, 3}), indices = array(DType::i64, {2, 3});
  backend().reduction.topk({.values = values, .indices = indices, .in = in, .k = 3}, stream());
  EXPECT_EQ(values.get(), (Values{5, 5, 2, 0, -3, -8}));
  EXPECT_EQ(indices.get(), (Values{1, 2, 3, 2, 0, 1}));
}

TEST_P(ReduceContract, SumsAlong) {
  const auto in = array({2, 3}).set({1, 2, 3, 4, 5, 6}), out = array({2, 3});
  backend().reduction.scan({.out = out, .in = in, .dim = 1, .reverse = false}, stream());
  EXPECT_EQ(out.get(), (Values{1, 3, 6, 4, 9, 15}));
  backend().reduction.scan({.out = out, .in = in, .dim = 1, .reverse = true}, stream());
  EXPECT_EQ(out.get(), (Values{6, 5, 3, 15, 11, 6}));
  backend().reduction.scan({.out = out, .in = in, .dim = 0, .reverse = false}, stream());
  EXPECT_EQ(out.get(), (Values{1, 2, 3, 5, 7, 9}));
}

TEST_P(ReduceContract, MultipliesAlong) {
  const auto in = array({2, 3}).set({1, 2, 3, 4, -5, 6}), out = array({2, 3});
  const auto run = [&](int dim, bool reverse) {
    backend().reduction.scan(
        {.op = ReduceOp::prod, .out = out, .in = in, .dim = dim, .reverse = reverse}, stream());
    return out.get();
  };
  EXPECT_EQ(run(1, false), (Values{1, 2, 6, 4, -20, -120}));
  EXPECT_EQ(run(1, true), (Values{6, 6, 3, -120, -30, 6}));
  EXPECT_EQ(run(0, false), (Values{1, 2, 3, 4, -10, 18}));
  // Lines of more elements than a block has threads; factors whose products every dtype holds.
  for (const Shape& shape : {Shape{3, 700}, Shape{700, 3}, Shape{700, 20}}) {
    const int dim = shape[0] > shape[1] ? 0 : 1;
    Values x(static_cast<std::size_t>(numel(shape)), 1.0), expected = x;
    const auto step = static_cast<std::size_t>(contiguous_strides(shape)[dim]);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t place = i / step % 700;
      if (place % 3 == 1) x[i] = place % 2 == 0 ? 2 : 0.5;
      if (place % 50 == 7) x[i] = -1;
      expected[i] = place == 0 ? x[i] : expected[i - step] * x[i];
    }
    const auto lines = array(shape).set(x), products = array(shape);
    backend().reduction.scan({.op = ReduceOp::prod, .out = products, .in = lines, .dim = dim},
                             stream());
    EXPECT_EQ(products.get(), expected) << shape;
  }
}

TEST_P(ReduceContract, LongLinesAreAsShortOnes) {
  // Vectors, rests of them and pieces; equal elements, zeros of both signs and NaN.
  for (const std::int64_t length : {3, 15, 16, 63, 64, 65, 129, 1024, 1030, 2500, 20000}) {
    const auto size = static_cast<std::size_t>(length);
    Values x(size);
    for (std::size_t i = 0; i < size; ++i) x[i] = static_cast<double>((i * 37 + 11) % 29) - 40;
    for (const double odd : {-99.0, 60.0, 0.0, -0.0, static_cast<double>(NAN), double{-INFINITY}})
      for (const std::size_t at : {std::size_t{0}, size / 2, size - 2, size - 1}) {
        Values line = x;
        line[at] = odd;
        const auto in = array({1, length}).set(line), extreme = array({1, 1});
        const auto place = array(DType::i64, {1, 1});
        for (const bool largest : {true, false}) {
          std::size_t best = 0;
          for (std::size_t i = 1; i < size && !std::isnan(line[best]); ++i)
            if (std::isnan(line[i]) || (largest ? line[i] > line[best] : line[i] < line[best]))
              best = i;
          const auto op = largest ? ReduceOp::amax : ReduceOp::amin;
          backend().reduction.arg_extreme({.out = place, .in = in, .dim = 1, .largest = largest},
                                          stream());
          backend().reduction.reduce({.op = op, .out = extreme, .in = in}, stream());
          EXPECT_EQ(place.get()[0], static_cast<double>(best)) << length << ' ' << odd << ' ' << at;
          EXPECT_TRUE(std::isnan(odd) ? std::isnan(extreme.get()[0])
                                      : extreme.get()[0] == line[best]);
        }
      }
  }
}

TEST_P(ReduceContract, ManyLinesAreSummedAsOne) {
  // Lines side by side and one after another, more than one call takes, forwards and back.
  for (const Shape& shape : {Shape{5, 1100}, Shape{5, 9}, Shape{5, 7}, Shape{2, 5, 3}, Shape{9, 1}})
    for (int dim = 0; dim < shape.size(); ++dim)
      for (const bool reverse : {false, true}) {
        Values x(static_cast<std::size_t>(numel(shape)));
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i * 7 % 5) - 2;
        const auto in = array(shape).set(x), out = array(shape);
        backend().reduction.scan({.out = out, .in = in, .dim = dim, .reverse = reverse}, stream());
        Values sums = x;
        const Strides strides = contiguous_strides(shape);
        const auto step = static_cast<std::size_t>(strides[dim]);
        const auto length = static_cast<std::size_t>(shape[dim]);
        for (std::size_t k = 0; k < x.size(); ++k) {
          const std::size_t i = reverse ? x.size() - 1 - k : k, place = i / step % length;
          if (reverse && place + 1 < length) sums[i] += sums[i + step];
          if (!reverse && place > 0) sums[i] += sums[i - step];
        }
        EXPECT_EQ(out.get(), sums) << shape << " along " << dim;
      }
}

INSTANTIATE_TEST_SUITE_P(
    Backends, ReduceContract,
    ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16, DType::f16})), target_name);

class ReduceAccuracy : public ContractTest {};

TEST_P(ReduceAccuracy, SumsTenMillionOnesExactly) {
  constexpr std::int64_t count = 10'000'000;
  const auto ones = array({count}), sum = array({1});
  backend().elementwise.fill({.out = ones, .value = 1.0}, stream());
  backend().reduction.reduce({.op = ReduceOp::sum, .out = sum, .in = ones}, stream());
  EXPECT_EQ(sum.get(), (Values{1e7}));
}

INSTANTIATE_TEST_SUITE_P(Backends, ReduceAccuracy, ::testing::ValuesIn(targets({DType::f32})),
                         target_name);

class ReduceIntegers : public ContractTest {};

TEST_P(ReduceIntegers, SumsAndExtremes) {
  const auto in = array({2, 3}).set({1, -2, 3, 4, 5, -6}), out = array({2, 1});
  const auto run = [&](ReduceOp op) {
    backend().reduction.reduce({.op = op, .out = out, .in = in}, stream());
    return out.get();
  };
  EXPECT_EQ(run(ReduceOp::sum), (Values{2, 3}));
  EXPECT_EQ(run(ReduceOp::amin), (Values{-2, -6}));
  EXPECT_EQ(run(ReduceOp::amax), (Values{3, 5}));
  EXPECT_EQ(run(ReduceOp::prod), (Values{-6, -120}));
  EXPECT_THROW(run(ReduceOp::mean), Unsupported);
  const auto along = array({2, 3});
  backend().reduction.scan({.op = ReduceOp::prod, .out = along, .in = in, .dim = 1}, stream());
  EXPECT_EQ(along.get(), (Values{1, -2, -6, 4, 20, -120}));
}

INSTANTIATE_TEST_SUITE_P(Backends, ReduceIntegers,
                         ::testing::ValuesIn(targets({DType::i64, DType::i32})), target_name);

class ReduceCounts : public ContractTest {};

TEST_P(ReduceCounts, GoPastTheRangeOfWhatTheyCount) {
  const double value = dtype() == DType::boolean ? 1 : 120;
  for (const std::int64_t count : {3, 40000}) {
    const auto in = array({2, count}), rows = array(DType::i64, {2, 1});
    backend().elementwise.fill({.out = in, .value = value}, stream());
    backend().reduction.reduce({.op = ReduceOp::sum, .out = rows, .in = in}, stream());
    EXPECT_EQ(rows.get(), Values(2, value * static_cast<double>(count)));
    const auto columns = array(DType::i64, {1, count});
    backend().reduction.reduce({.op = ReduceOp::sum, .out = columns, .in = in}, stream());
    EXPECT_EQ(columns.get(), Values(static_cast<std::size_t>(count), 2 * value));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Backends, ReduceCounts,
    ::testing::ValuesIn(targets({DType::i64, DType::i32, DType::u8, DType::boolean})), target_name);

class LongCumsumContract : public ContractTest {};

// Sums of one line in f32 would stop growing, and lines are shared out.
TEST_P(LongCumsumContract, LosesNothing) {
  const std::int64_t n = 5000;
  Values values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(i == 0 ? 16777216.0 : 1.0);
  const auto in = array({2, n}).set([&] {
    Values both = values;
    both.insert(both.end(), values.begin(), values.end());
    return both;
  }());
  const auto out = array({2, n});
  for (const bool reverse : {false, true}) {
    backend().reduction.scan({.out = out, .in = in, .dim = 1, .reverse = reverse}, stream());
    const Values found = out.get();
    for (const std::int64_t i : {0L, 31L, 32L, 255L, 256L, 300L, n - 1}) {
      const double expected =
          reverse ? double(n - i) + (i == 0 ? 16777215.0 : 0.0) : 16777216.0 + double(i);
      EXPECT_EQ(found[static_cast<std::size_t>(n + i)], static_cast<float>(expected))
          << i << reverse;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, LongCumsumContract, ::testing::ValuesIn(targets({DType::f32})),
                         target_name);

}  // namespace
}  // namespace lockstep::test
