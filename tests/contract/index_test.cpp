#include "arguments/index.hpp"

#include <cmath>

#include "contract/backends.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::test {
namespace {

class IndexContract : public ContractTest {};

TEST_P(IndexContract, GathersAndScatters) {
  const auto in = array({2, 3}).set({1, 2, 3, 4, 5, 6}), out = array({2, 2});
  const auto index = array(DType::i64, {2, 2}).set({2, 2, 0, 1});
  backend().index.gather({.out = out, .in = in, .index = index, .dim = 1}, stream());
  EXPECT_EQ(out.get(), (Values{3, 3, 4, 5}));
  const auto sum = array({2, 3}).set(Values(6, 1.0));
  backend().index.scatter_add({.out = sum, .in = out, .index = index, .dim = 1}, stream());
  EXPECT_EQ(sum.get(), (Values{1, 1, 7, 5, 6, 1}));
  if (GetParam().device.is_cuda()) return;
  const auto beyond = array(DType::i64, {2, 2}).set({0, 3, 0, 0});
  EXPECT_THROW(backend().index.gather({.out = out, .in = in, .index = beyond, .dim = 1}, stream()),
               InvalidArgument);
}

// More lines side by side than the CPU goes through at once, and more elements than one thread has.
TEST_P(IndexContract, TakesManyLinesAndLongOnes) {
  const std::int64_t sizes[][2] = {{40, 700}, {700, 40}, {1, 70'000}, {70'000, 1}};
  for (const auto& [rows, columns] : sizes)
    for (const int dim : {0, 1})
      for (const bool repeated : {false, true}) {  // one index for all lines
        auto in = array({rows, columns}).randomize(1, 0, 4);
        Values x = in.get();
        for (double& value : x) value = std::floor(value);  // so that sums are exact
        in.set(x);
        const auto out = array({rows, columns});
        const auto sum = array({rows, columns}).set(Values(x.size(), 0.0));
        const std::int64_t length = dim == 0 ? rows : columns, lines = dim == 0 ? columns : rows;
        const auto index = array(DType::i64, {repeated ? length : rows * columns})
                               .randomize(2, 0, static_cast<double>(length));
        const Values places = index.get();
        ArrayView named = index;
        named.shape = {rows, columns};
        named.strides = repeated ? (dim == 0 ? Strides{1, 0} : Strides{0, 1}) : Strides{columns, 1};
        backend().index.gather({.out = out, .in = in, .index = named, .dim = dim}, stream());
        backend().index.scatter_add({.out = sum, .in = in, .index = named, .dim = dim}, stream());
        Values y(x.size()), z(x.size());
        for (std::int64_t line = 0; line < lines; ++line)
          for (std::int64_t i = 0; i < length; ++i) {
            const auto at = [&](std::int64_t place) {
              return static_cast<std::size_t>(dim == 0 ? place * columns + line
                                                       : line * columns + place);
            };
            const double place = places[repeated ? static_cast<std::size_t>(i) : at(i)];
            const std::size_t named_at = at(static_cast<std::int64_t>(place));
            y[at(i)] = x[named_at];
            z[named_at] += x[at(i)];
          }
        EXPECT_EQ(out.get(), y) << rows << " x " << columns << " along " << dim;
        EXPECT_EQ(sum.get(), z) << rows << " x " << columns << " along " << dim;
      }
}

// Where nobody waits for an error: what is looked up there is NaN, and what is added left out.
TEST_P(IndexContract, GivesNanOnAGpuForWhatIsOutOfRange) {
  if (!GetParam().device.is_cuda()) return;
  const Tensor x = ones({3}, {GetParam().dtype, GetParam().device});
  const Tensor index = tensor<std::int64_t>({7, -1, 2}).to(GetParam().device);
  for (const Tensor& y : {gather(x, 0, index), index_select(x, 0, index)}) {
    const auto numbers = y.to(DType::f64).to_vector<double>();
    EXPECT_TRUE(std::isnan(numbers[0]) && std::isnan(numbers[1])) << numbers[0];
    EXPECT_EQ(numbers[2], 1);
  }
  EXPECT_EQ(gather(x.to(DType::i64), 0, index).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{0, 0, 1}));
  EXPECT_EQ(index_add(x, 0, index, x).to(DType::f64).to_vector<double>(),
            (std::vector<double>{1, 1, 2}));
  const Tensor targets = tensor<std::int64_t>({5}).to(GetParam().device);
  EXPECT_TRUE(std::isnan(nll_loss(x.reshape({1, 3}), targets).to(DType::f64).item()));
}

INSTANTIATE_TEST_SUITE_P(
    Backends, IndexContract,
    ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16, DType::f16})), target_name);

}  // namespace
}  // namespace lockstep::test
