#include <functional>
#include <string_view>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "autograd/fixed_sink.hpp"
#include "autograd/leaves.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"

// Exchanging the array behind a leaf.

namespace lockstep {
namespace {

using autograd::leaf_of;
using autograd::LeafNode;
using testing::f64;
using testing::FixedSink;
using ::testing::HasSubstr;
using testing::leaf;

std::string refusal_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

TEST(SetData, KeepsTheLeafWithItsGradientAndHooks) {
  Tensor x = leaf({1.0, 2.0});
  const Tensor handle = x;
  int fired = 0;
  leaf_of(x).add_hook([&](LeafNode&) { ++fired; });
  sum(x).backward();
  const LeafNode& node = leaf_of(x);
  x.set_data(tensor<double>({5.0, 7.0}));
  EXPECT_EQ(&leaf_of(handle), &node);
  EXPECT_EQ(handle.to_vector<double>(), (std::vector{5.0, 7.0}));
  EXPECT_TRUE(equal(handle.grad(), ones({2}, f64)));
  sum(square(handle)).backward();
  EXPECT_EQ(handle.grad().to_vector<double>(), (std::vector{11.0, 15.0}));
  EXPECT_EQ(fired, 2);
}

TEST(SetData, KeepsTheSink) {
  Tensor x = leaf({1.0, 2.0});
  const Tensor memory = zeros({2}, f64);
  const FixedSink sink(x, memory);
  x.set_data(tensor<double>({5.0, 7.0}));
  sum(x * 3.0).backward();
  EXPECT_TRUE(x.grad().data_ptr() == memory.data_ptr());
  EXPECT_EQ(sink.times_final, 1);
}

TEST(SetData, KeepsAFrozenLeafFrozen) {
  Tensor x = leaf({1.0});
  int fired = 0;
  leaf_of(x).add_hook([&](LeafNode&) { ++fired; });
  x.set_requires_grad(false).set_data(tensor<double>({2.0}));
  EXPECT_FALSE(x.requires_grad());
  x.set_requires_grad(true);
  sum(x).backward();
  EXPECT_EQ(fired, 1);
}

TEST(SetData, TakesTheGradientAlongIntoAnotherDtype) {
  Tensor x = leaf({1.0, 2.0});
  int fired = 0;
  leaf_of(x).add_hook([&](LeafNode&) { ++fired; });
  sum(x * 3.0).backward();
  x.set_data(x.detach().to(DType::f32));
  EXPECT_TRUE(equal(x.grad(), full({2}, 3.0)));
  sum(x).backward();
  EXPECT_TRUE(equal(x.grad(), full({2}, 4.0)));
  EXPECT_EQ(fired, 2);
}

TEST(SetData, ChangesTheShapeOfALeafWithoutAGradient) {
  Tensor x = leaf({1.0, 2.0, 3.0, 4.0});
  int fired = 0;
  leaf_of(x).add_hook([&](LeafNode&) { ++fired; });
  const Tensor own_half = x.detach().slice(0, 2, 4).clone();
  x.set_data(own_half);
  sum(square(x)).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector{6.0, 8.0}));
  EXPECT_THAT(refusal_of([&] { x.set_data(zeros({4}, f64)); }),
              AllOf(HasSubstr("shape [2] has a gradient"), HasSubstr("[4]")));
  EXPECT_TRUE(x.is_same(x) && equal(x.detach(), own_half));
  x.set_grad({});
  x.set_data(zeros({4}, f64));
  sum(x).backward();
  EXPECT_TRUE(equal(x.grad(), ones({4}, f64)));
  EXPECT_EQ(fired, 2);
}

TEST(SetData, RefusesWhatNoLeafWithAGradientCanBe) {
  Tensor x = leaf({1.0});
  EXPECT_THROW(x.set_data(arange(3)), InvalidArgument);
  EXPECT_THROW((x * 2.0).set_data(x), InvalidArgument);
}

TEST(SetData, AsksASinkBeforeItChangesTheForm) {
  Tensor x = leaf({1.0, 2.0});
  const FixedSink sink(x, zeros({2}, f64));
  EXPECT_THROW(x.set_data(zeros({3}, f64)), InvalidArgument);
  EXPECT_THROW(x.set_data(zeros({2})), InvalidArgument);
  EXPECT_EQ(x.dtype(), DType::f64);
  EXPECT_EQ(x.shape(), (Shape{2}));
}

/// Gives memory in the form that the leaf has, as one that shares out parameters does.
class SharingSink final : public autograd::GradientSink {
 public:
  explicit SharingSink(const Tensor& leaf) : leaf_(leaf) { leaf_of(leaf).set_sink(*this, 0); }
  SharingSink(const SharingSink&) = delete;
  SharingSink& operator=(const SharingSink&) = delete;
  ~SharingSink() { leaf_of(leaf_).release_sink(*this); }
  Tensor memory_for(std::size_t) override { return zeros(leaf_.shape(), f64); }
  void before_change(std::size_t, const Tensor&) override {}
  void on_final(std::size_t) override { whole = leaf_.grad().clone(); }
  void on_taken(std::size_t) noexcept override {}

  Tensor whole;  ///< the last gradient of the whole parameter

 private:
  Tensor leaf_;
};

// A parameter that is whole for forward and backward, and of which this rank keeps a half between.
TEST(SetData, LetsASinkShareOutAParameter) {
  Tensor x = leaf({1.0, 2.0, 3.0, 4.0});
  SharingSink sink(x);
  Tensor own_half = x.detach().slice(0, 0, 2).clone();
  for (int step = 0; step < 3; ++step) {
    x.set_data(cat({own_half, full({2}, 9.0, f64)}, 0));
    sum(square(x)).backward();
    x.set_grad({});
    x.set_data(own_half);
    x.set_grad(sink.whole.slice(0, 0, 2));
    no_grad([&] { own_half.add_(x.grad() * -0.25); });
    x.set_grad({});
  }
  EXPECT_EQ(x.to_vector<double>(), (std::vector{0.125, 0.25}));
}

// The op writes into the gradient's memory, which has the form of the leaf.
TEST(SetData, RefusesTheGradientOfAGraphFromBefore) {
  Tensor table = randn({3, 2}, f64).set_requires_grad();
  const Tensor y = embedding(tensor<std::int64_t>({2, 0}), table);
  table.set_data(zeros({1, 2}, f64));
  EXPECT_THAT(refusal_of([&] { sum(y).backward(); }), HasSubstr("[3, 2]"));
}

// Ops whose gradients are windows, sums or scatters, in the shape that the operand had.
TEST(SetData, RefusesTheGradientsOfViewsAndSumsFromBefore) {
  const auto index = tensor<std::int64_t>({1, 0});
  const std::pair<std::string_view, std::function<Tensor(const Tensor&)>> ops[] = {
      {"reshape",
       [](const Tensor& x) {
         return x.reshape({2, 1});
       }},
      {"slice", [](const Tensor& x) { return x.slice(0, 0, 1); }},
      {"expand",
       [](const Tensor& x) {
         return x.expand({3, 2});
       }},
      {"sum", [](const Tensor& x) { return sum(x); }},
      {"add",
       [](const Tensor& x) {
         return x + ones({3, 2}, f64);
       }},
      {"gather", [&](const Tensor& x) { return gather(x, 0, index); }},
      {"where",
       [](const Tensor& x) {
         return where(x > 0.0, x, zeros({3, 2}, f64));
       }},
      {"pad", [](const Tensor& x) {
         return pad(x, {1, 1});
       }}};
  for (const auto& [name, op] : ops) {
    Tensor x = leaf({1.0, 2.0});
    const Tensor y = sum(op(x) * 3.0), again = sum(op(x) * 3.0);
    x.set_data(zeros({4}, f64));
    EXPECT_THAT(refusal_of([&] { y.backward(); }), AllOf(HasSubstr("[2]"), HasSubstr("[4]")))
        << name;
    EXPECT_FALSE(x.grad().defined()) << name;
    // A new graph has the new shape, and the former one its own once that is back.
    sum(x * 2.0).backward();
    EXPECT_TRUE(equal(x.grad(), full({4}, 2.0, f64))) << name;
    x.set_grad({});
    x.set_data(tensor<double>({1.0, 2.0}));
    again.backward();
    EXPECT_EQ(x.grad().shape(), (Shape{2})) << name;
  }
}

TEST(SetData, KeepsTheHooksOfALeafOfAnotherShape) {
  Tensor x = leaf({1.0, 2.0});
  x.set_data(zeros({3}, f64));
  x.register_hook([](const Tensor& gradient) { return gradient * 2.0; });
  sum(x * 2.0).backward();
  EXPECT_TRUE(equal(x.grad(), full({3}, 4.0, f64)));
}

// Storage is reused: its address and version may be those of the former one.
TEST(SetData, IsNoticedByAGraphThoughTheMemoryIsTheSameAgain) {
  for (int exchanges = 1; exchanges < 6; ++exchanges) {
    Tensor x = leaf({2.0});
    const Tensor y = sum(x * x);
    for (int i = 0; i < exchanges; ++i) x.set_data(tensor<double>({5.0}));
    EXPECT_THROW(y.backward(), InvalidArgument) << exchanges;
  }
}

}  // namespace
}  // namespace lockstep
