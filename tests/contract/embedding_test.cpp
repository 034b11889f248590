#include "arguments/embedding.hpp"

#include "contract/backends.hpp"

namespace lockstep::test {
namespace {

class EmbeddingContract : public ContractTest {
 protected:
  const kernels::EmbeddingKernels& family() { return backend().embedding; }
};

TEST_P(EmbeddingContract, LooksUpAndSumsBack) {
  const auto table = array({5, 3}).randomize(1), out = array({4, 3}), dtable = array({5, 3});
  const auto index = array(DType::i64, {4}).set({2, 0, 2, 4});
  family().forward({.out = out, .table = table, .index = index}, stream());
  const Values rows_of = table.get();
  Values expected;
  for (const std::size_t row : {2u, 0u, 2u, 4u})
    for (std::size_t c = 0; c < 3; ++c) expected.push_back(rows_of[row * 3 + c]);
  EXPECT_EQ(out.get(), expected);

  const auto dy = array({4, 3}).set({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  family().backward({.dtable = dtable, .dy = dy, .index = index, .padding_index = 4}, stream());
  EXPECT_EQ(dtable.get(), (Values{4, 5, 6, 0, 0, 0, 8, 10, 12, 0, 0, 0, 0, 0, 0}));
  family().backward({.dtable = dtable, .dy = dy, .index = index, .accumulate = true}, stream());
  EXPECT_EQ(dtable.get(), (Values{8, 10, 12, 0, 0, 0, 16, 20, 24, 0, 0, 0, 10, 11, 12}));
  if (GetParam().device.is_cuda()) return;
  const auto bad = array(DType::i64, {4}).set({2, 0, 5, 4});
  const kernels::EmbeddingArguments arguments{.out = out, .table = table, .index = bad};
  EXPECT_THROW(family().forward(arguments, stream()), InvalidArgument);
}

// Of wide rows and odd ones; an addend for each row, one for every so many, and one for all.
TEST_P(EmbeddingContract, AddsWhatBeginsAgainBehindItsLastRow) {
  const std::int64_t n = 24, entries = 7;
  for (const std::int64_t columns : {64, 9})
    for (const std::int64_t m : {24, 6, 1}) {
      const auto table = array({entries, columns}).randomize(1);
      const auto addend = array({m, columns}).randomize(2);
      const auto out = array({n, columns});
      auto sum = array({n, columns});
      Values labels = random_values(n, 3, 0, static_cast<double>(entries));
      for (double& label : labels) label = std::floor(label);
      const auto index = array(DType::i64, {n}).set(labels);
      family().forward({.out = out, .table = table, .index = index, .addend = addend}, stream());
      const Values rows = table.get(), terms = addend.get();
      Values expected;
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t c = 0; c < columns; ++c) {
          const auto entry = static_cast<std::int64_t>(labels[static_cast<std::size_t>(i)]);
          expected.push_back(rows[static_cast<std::size_t>(entry * columns + c)] +
                             terms[static_cast<std::size_t>(i % m * columns + c)]);
        }
      EXPECT_EQ(out.get(), sum.set(expected).get()) << columns << " columns, " << m << " rows";
    }
}

// Few rows, long and short runs of each, one that nobody looks up.
TEST_P(EmbeddingContract, SumsManyOfTheSameRow) {
  const std::int64_t count = 1200, rows = 6, columns = 5;
  const auto row_of = [](std::int64_t i) {
    return i % 3 == 0 ? 4 : i % 50 == 1 ? 1 : i % 400 == 2 ? 3 : 5;
  };
  Values index, gradient;
  Values expected(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < count; ++i) {
    index.push_back(row_of(i));
    for (std::int64_t c = 0; c < columns; ++c) {
      const double value = static_cast<double>((i + c) % 2) - 0.5 + static_cast<double>(c % 2) / 4;
      gradient.push_back(value);
      expected[static_cast<std::size_t>(row_of(i) * columns + c)] += value;
    }
  }
  const auto dy = array({count, columns}).set(gradient), dtable = array({rows, columns});
  family().backward({.dtable = dtable, .dy = dy, .index = array(DType::i64, {count}).set(index)},
                    stream());
  EXPECT_TRUE(close(dtable.get(), expected, tolerance(4)));
}

// Few pairs of entries and indices, and so many that a GPU sorts them, and on the CPU few indices
// for the entries that there are; with long runs, some of which end with a chunk.
TEST_P(EmbeddingContract, SumsBackManyRowsOfFewEntries) {
  for (const auto& [n, entries] :
       {std::pair<std::int64_t, std::int64_t>{300, 40}, {700, 6500}, {300, 6500}}) {
    const std::int64_t columns = 9;
    const auto dy = array({n, columns}).randomize(1, 0, 1);
    const auto dtable = array({entries, columns}).randomize(2);
    Values labels = random_values(n, 3, 0, static_cast<double>(entries));
    for (std::size_t i = 0; i < labels.size(); ++i) {
      labels[i] = std::floor(labels[i]);
      if (i % 2 == 0) labels[i] = 5;
      if (i >= 100 && i < 228) labels[i] = i < 164 ? 3 : 0;
    }
    const auto index = array(DType::i64, {n}).set(labels);
    const Values rows = dy.get(), held = dtable.get();
    Values sums(held.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto entry = static_cast<std::size_t>(labels[i / 9]);
      if (entry == 3) continue;
      sums[entry * 9 + i % 9] += rows[i];
    }
    const kernels::EmbeddingBackwardArguments arguments{
        .dtable = dtable, .dy = dy, .index = index, .padding_index = 3};
    kernels::EmbeddingBackwardArguments adds = arguments;
    adds.accumulate = true;
    family().backward(adds, stream());
    Values added = held;
    for (std::size_t i = 0; i < added.size(); ++i) added[i] += sums[i];
    EXPECT_TRUE(close(dtable.get(), added, tolerance(400)));
    family().backward(arguments, stream());
    EXPECT_TRUE(close(dtable.get(), sums, tolerance(400)));
  }
}

// In groups of 32 they are more than a grid's second dimension counts.
TEST_P(EmbeddingContract, SumsBackIntoMillionsOfColumns) {
  const std::int64_t columns = 65'535 * 32 + 1;
  const auto dy = array({1, columns}).randomize(1), dtable = array({1, columns});
  const auto index = array(DType::i64, {1}).set({0});
  family().backward({.dtable = dtable, .dy = dy, .index = index}, stream());
  EXPECT_EQ(dtable.get(), dy.get());
}

INSTANTIATE_TEST_SUITE_P(
    Backends, EmbeddingContract,
    ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16, DType::f16})), target_name);

}  // namespace
}  // namespace lockstep::test
