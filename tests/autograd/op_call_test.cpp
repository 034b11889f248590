#include "lockstep/autograd/op_call.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "functional/op_list.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/described_ops.hpp"

namespace lockstep::autograd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr OpDescriptor cube_op{.name = "cube"};

/// An op as a user writes it, outside the library.
Tensor cube(const Tensor& x_in) {
  const OpCall call(cube_op, x_in);
  const Tensor& x = call[0];
  Tensor y = no_grad([&] { return x * x * x; });
  if (!call.recording()) return y;
  return call.record(y, [x = SavedTensor(x)](const Tensor& dy, InputGradients& dx) {
    dx.set(0, dy * square(x.get()) * 3.0);
  });
}

template <class Function>
std::string message_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

Tensor uniform_leaf(const Shape& shape, DType dtype = DType::f32) {
  return rand(shape).to(dtype).set_requires_grad();
}

TEST(OpCall, LetsUsersDefineDifferentiableOps) {
  const Tensor x = tensor<float>({2.0F, -1.0F}).set_requires_grad();
  sum(cube(x)).backward();
  EXPECT_THAT(x.grad().to_vector<float>(), ElementsAre(12.0F, 3.0F));
}

TEST(OpCall, NamesOpDTypeAndDeviceOfWhatItRefuses) {
  EXPECT_THAT(message_of([] { cube(arange(3)); }),
              HasSubstr("cube: dtype i64 is not offered on device cpu; it needs a floating dtype"));
  EXPECT_THROW(cube(arange(3)), Unsupported);
  EXPECT_THROW(cube(Tensor()), InvalidArgument);
  EXPECT_THAT(message_of([] {
                linear(ones({2, 3}), ones({4, 3}, {DType::f64}));
              }),
              HasSubstr("linear: operands have dtypes f32 and f64"));
  EXPECT_THAT(message_of([] { cat(std::vector<Tensor>{}); }), HasSubstr("cat: the list"));
}

TEST(OpCall, NamesTheOpWhoseSavedOperandWasChanged) {
  const Tensor x = uniform_leaf({2});
  const Tensor y = sum(cube(x));
  no_grad([&] { Tensor(x).fill_(1.0); });
  EXPECT_THAT(message_of([&] { y.backward(); }), HasSubstr("backward of cube: a saved tensor"));
}

TEST(OpCall, RecordsGradientsOfDenseCopiesForTheOperandItself) {
  const Tensor weight = uniform_leaf({3, 5}), x = rand({2, 5, 4});
  const Tensor y =
      layer_norm(x.transpose(1, 2).detach().set_requires_grad(), {5}, weight.select(0, 1));
  sum(square(y)).backward();
  EXPECT_EQ(weight.grad().shape(), (Shape{3, 5}));
}

TEST(OpCall, RunsProductsInTheDTypeOfTheAutocastMode) {
  const Tensor x = uniform_leaf({4, 32}), weight = uniform_leaf({8, 32}), bias = uniform_leaf({8});
  const Tensor expected = linear(x, weight, bias);
  Tensor y;
  {
    const AutocastModeGuard lower(DeviceType::cpu, DType::bf16);
    y = linear(x, weight, bias);
  }
  EXPECT_EQ(y.dtype(), DType::bf16);
  EXPECT_TRUE(allclose(y.to(DType::f32), expected, 2e-2, 2e-2));
}

/// The memory of one gradient, as a bucket has it.
struct OneSink final : GradientSink {
  explicit OneSink(Tensor tensor) : memory(std::move(tensor)) {}
  Tensor memory_for(std::size_t) override { return memory; }
  void on_final(std::size_t) override {}
  void on_taken(std::size_t) noexcept override {}
  Tensor memory;
};

TEST(OpCall, ReturnsGradientsInTheDTypeInWhichOperandsWereGiven) {
  const Tensor x = uniform_leaf({4, 32}), weight = uniform_leaf({8, 32}), bias = uniform_leaf({8});
  sum(linear(x, weight, bias)).backward();
  const Tensor expected = weight.grad().clone(), expected_x = x.grad().clone();
  for (const Tensor& each : {x, weight, bias}) leaf_of(each).clear_gradient();
  OneSink sink(full({8, 32}, 7.0));
  leaf_of(weight).set_sink(sink, 0);
  {
    const AutocastModeGuard lower(DeviceType::cpu, DType::bf16);
    sum(linear(x, weight, bias)).backward();
  }
  EXPECT_EQ(weight.grad().dtype(), DType::f32);
  EXPECT_EQ(weight.grad().data_ptr(), sink.memory.data_ptr());
  EXPECT_TRUE(allclose(weight.grad(), expected, 2e-2, 2e-2));
  EXPECT_TRUE(allclose(x.grad(), expected_x, 2e-2, 2e-2));
  EXPECT_EQ(bias.grad().dtype(), DType::f32);
  leaf_of(weight).release_sink(sink);
}

TEST(OpCall, RunsInF32WhatNeedsItsRangeAndWidensMixedOperands) {
  const AutocastModeGuard lower(DeviceType::cpu, DType::bf16);
  const Tensor half = uniform_leaf({3, 4}, DType::bf16), single = uniform_leaf({3, 4});
  EXPECT_EQ(exp(half).dtype(), DType::f32);
  EXPECT_EQ(softmax(half, -1).dtype(), DType::f32);
  EXPECT_EQ(relu(half).dtype(), DType::bf16);
  EXPECT_EQ((half + single).dtype(), DType::f32);
  EXPECT_EQ((half + half).dtype(), DType::bf16);
  EXPECT_EQ(cat(std::vector{half, single}, 0).dtype(), DType::f32);
  sum(half * single).backward();
  EXPECT_EQ(half.grad().dtype(), DType::bf16);
  EXPECT_EQ(single.grad().dtype(), DType::f32);
}

TEST(OpCall, LeavesF64AloneAndEndsWithTheScope) {
  {
    const AutocastModeGuard lower(DeviceType::cpu, DType::bf16);
    EXPECT_EQ(matmul(ones({2, 2}, {DType::f64}), ones({2, 2}, {DType::f64})).dtype(), DType::f64);
    const AutocastModeGuard off;
    EXPECT_EQ(matmul(ones({2, 2}), ones({2, 2})).dtype(), DType::f32);
  }
  EXPECT_EQ(matmul(ones({2, 2}), ones({2, 2})).dtype(), DType::f32);
}

TEST(OpCall, ComputesGradientsInTheDTypesOfTheForward) {
  const Tensor a = uniform_leaf({4, 4}), b = uniform_leaf({4, 4});
  const Tensor y = sum(matmul(a, b));
  y.backward({}, true);
  const Tensor expected = a.grad().clone();
  leaf_of(a).clear_gradient();
  const AutocastModeGuard lower(DeviceType::cpu, DType::bf16);
  y.backward();
  EXPECT_EQ(a.grad().to_vector<float>(), expected.to_vector<float>());
}

constexpr OpDescriptor reversed_op{.name = "reversed_gradient"};

/// Gives its operand back, and a gradient of the other sign (Ganin and Lempitsky 2015).
Tensor reversed_gradient(const Tensor& x, const Tensor& other) {
  const OpCall call(reversed_op, x, other);
  if (!call.recording()) return x;
  return call.record(call.dense(0), [](const Tensor& dy, InputGradients& dx) { dx.set(0, -dy); });
}

TEST(OpCall, LeavesAnOperandAsItIsThatTheOpGivesBack) {
  const Tensor x = uniform_leaf({2}), none = Tensor();
  const Tensor y = reversed_gradient(x, none);
  EXPECT_TRUE(x.is_leaf());
  EXPECT_FALSE(y.is_leaf());
  EXPECT_EQ(y.data_ptr(), x.data_ptr());
  sum(y * 3.0).backward();
  EXPECT_THAT(x.grad().to_vector<float>(), ElementsAre(-3.0F, -3.0F));

  const Tensor z = uniform_leaf({2});
  const Tensor computed = z * 2.0;
  const Tensor before = sum(computed * 5.0);
  const Tensor reversed = sum(reversed_gradient(computed, none));
  (before + reversed + sum(computed * 100.0)).backward();
  EXPECT_THAT(z.grad().to_vector<float>(), ElementsAre(208.0F, 208.0F));
}

TEST(OpCall, LeavesAnOperandWithoutGradientAsItIsThatTheOpGivesBack) {
  const Tensor plain = ones({2}), x = uniform_leaf({2});
  const Tensor y = reversed_gradient(plain, x);
  EXPECT_TRUE(y.requires_grad());
  EXPECT_FALSE(plain.requires_grad());
  EXPECT_TRUE(plain.is_leaf());
}

TEST(OpCall, LeavesOperandsAsTheyAreThatAnOpWithSeveralResultsGivesBack) {
  constexpr static OpDescriptor twice_op{.name = "twice"};
  const Tensor x = uniform_leaf({2});
  const OpCall call(twice_op, x);
  std::array<Tensor, 2> both{x, x};
  call.record_outputs(both, [](std::span<const Tensor> dy, InputGradients& dx) {
    dx.set(0, dy[0] * 2.0 + dy[1] * 3.0);
  });
  EXPECT_TRUE(x.is_leaf());
  EXPECT_FALSE(both[0].is_same(both[1]));
  sum(both[0] + both[1] * 10.0).backward();
  EXPECT_THAT(x.grad().to_vector<float>(), ElementsAre(32.0F, 32.0F));
}

/// Runs the backward of an op of one operand of two elements; it is what `set` makes of it.
template <class Set>
std::string message_of_backward(Set set, const Tensor& x = uniform_leaf({2})) {
  constexpr static OpDescriptor custom_op{.name = "custom"};
  const OpCall call(custom_op, x);
  const Tensor y = call.record(no_grad([&] { return x * 1.0; }), set);
  return message_of([&] { sum(y).backward(); });
}

TEST(OpCall, NamesAnOperandThatAnOpDoesNotHaveAndAGradientSetTwice) {
  EXPECT_THAT(message_of_backward([](const Tensor& dy, InputGradients& dx) { dx.set(1, dy); }),
              HasSubstr("backward of custom: there is no operand 1, the op has 1"));
  EXPECT_THAT(message_of_backward([](const Tensor& dy, InputGradients& dx) {
                dx.write(7, dy.shape(), dy.options(), [](const Tensor&, bool) {});
              }),
              HasSubstr("backward of custom: there is no operand 7, the op has 1"));
  EXPECT_THAT(message_of_backward([](const Tensor& dy, InputGradients& dx) {
                dx.set(0, dy);
                dx.set(0, dy);
              }),
              HasSubstr("backward of custom: the gradient of operand 0 was handed over twice"));
}

TEST(OpCall, RefusesAGradientOfAnotherShapeThanItsOperand) {
  const auto shape_of_operand = HasSubstr(
      "backward of custom: the gradient of operand 0 is of shape [3], the operand of [2]");
  for (const bool is_leaf : {true, false}) {
    const Tensor x = is_leaf ? uniform_leaf({2}) : uniform_leaf({2}) * 1.0;
    EXPECT_THAT(
        message_of_backward([](const Tensor&, InputGradients& dx) { dx.set(0, zeros({3})); }, x),
        shape_of_operand);
    EXPECT_THAT(
        message_of_backward(
            [](const Tensor&, InputGradients& dx) { dx.set(0, zeros({3}, DType::f64)); }, x),
        shape_of_operand);
    EXPECT_THAT(message_of_backward(
                    [](const Tensor& dy, InputGradients& dx) {
                      dx.write(0, {3}, dy.options(), [](const Tensor&, bool) { FAIL(); });
                    },
                    x),
                shape_of_operand);
    EXPECT_THAT(message_of_backward(
                    [](const Tensor&, InputGradients& dx) {
                      dx.set(0, zeros({2, 1}));
                    },
                    x),
                HasSubstr("is of shape [2, 1], the operand of [2]"));
  }
}

TEST(OpCall, RefusesAGradientOfAnotherShapeThanOneOfSeveralResults) {
  constexpr static OpDescriptor parts_op{.name = "parts"}, custom_op{.name = "custom"};
  const Tensor x = uniform_leaf({2});
  const OpCall call(parts_op, x);
  std::array<Tensor, 2> parts{zeros({4}), zeros({5})};
  call.record_outputs(parts, [](std::span<const Tensor>, InputGradients&) {});
  const OpCall last(custom_op, parts[1]);
  const Tensor y =
      last.record(zeros({}), [](const Tensor&, InputGradients& dx) { dx.set(0, zeros({4})); });
  EXPECT_THAT(message_of([&] { y.backward(); }),
              HasSubstr("the gradient of operand 0 is of shape [4], the operand of [5]"));
}

TEST(OpCall, TellsABackwardTheShapesOfItsOperands) {
  constexpr static OpDescriptor custom_op{.name = "custom"};
  const Tensor x = uniform_leaf({2, 3}), y = uniform_leaf({4}) * 1.0, constant = zeros({5});
  const OpCall call(custom_op, x, y, constant);
  const Tensor z = call.record(zeros({}), [](const Tensor&, InputGradients& dx) {
    EXPECT_EQ(dx.operand_shape(0), (Shape{2, 3}));
    EXPECT_EQ(dx.operand_shape(1), (Shape{4}));
    EXPECT_THAT(message_of([&] { (void)dx.operand_shape(2); }),
                HasSubstr("backward of custom: the shape of operand 2 is not known"));
    EXPECT_THAT(message_of([&] { (void)dx.operand_shape(3); }), HasSubstr("no operand 3"));
  });
  z.backward();
}

TEST(Ops, NameTheReductionThatABackwardCannotGoThroughTwice) {
  const std::pair<std::string_view, Tensor (*)(const Tensor&)> reductions[] = {
      {"sum", [](const Tensor& x) { return sum(x); }},
      {"mean", [](const Tensor& x) { return mean(x); }},
      {"prod", [](const Tensor& x) { return prod(x); }},
      {"amax", [](const Tensor& x) { return amax(x); }},
      {"norm", [](const Tensor& x) { return norm(x); }}};
  for (const auto& [name, reduction] : reductions) {
    const Tensor x = rand({3}).set_requires_grad();
    const Tensor y = reduction(x);
    y.backward();
    EXPECT_THAT(message_of([&] { y.backward(); }),
                HasSubstr("backward through " + std::string(name) + " a second time"));
  }
}

// They would be gone before the call uses them.
static_assert(std::is_constructible_v<OpCall<2>, const OpDescriptor&, const Tensor&, Tensor&>);
static_assert(!std::is_constructible_v<OpCall<1>, const OpDescriptor&, Tensor>);
static_assert(!std::is_constructible_v<OpCall<2>, const OpDescriptor&, const Tensor&, Tensor>);
static_assert(!std::is_constructible_v<OpCall<2>, const OpDescriptor&, Tensor&, const Tensor>);
static_assert(std::is_constructible_v<OpListCall, const OpDescriptor&, const std::vector<Tensor>&>);
static_assert(std::is_constructible_v<OpListCall, const OpDescriptor&, std::span<const Tensor>>);
static_assert(!std::is_constructible_v<OpListCall, const OpDescriptor&, std::vector<Tensor>>);

struct RecordedRanges final : TraceSink {
  void begin(std::string_view name, TracePhase phase) noexcept override {
    lines.push_back(std::string(depth++, ' ') + std::string(name) +
                    (phase == TracePhase::backward ? " backward" : ""));
  }
  void end() noexcept override { --depth; }
  std::size_t depth = 0;
  std::vector<std::string> lines;
};

TEST(OpCall, OpensATraceRangeForEachOpAndEachNode) {
  RecordedRanges ranges;
  const Tensor x = uniform_leaf({2, 3}), weight = uniform_leaf({4, 3});
  add_trace_sink(ranges);
  const Tensor y = linear(x, weight);
  y.backward(y.detach());
  remove_trace_sink(ranges);
  EXPECT_THAT(ranges.lines, ElementsAre("linear", "linear backward"));
  EXPECT_EQ(ranges.depth, 0U);
}

TEST(Descriptors, DescribeEachOpOnce) {
  const auto ops = testing::described_ops();
  EXPECT_EQ(std::ranges::adjacent_find(ops), ops.end());
  for (const std::string& op : ops) {
    EXPECT_FALSE(std::ranges::any_of(unary_ops, [&](const auto& u) { return u.name == op; }));
    EXPECT_FALSE(std::ranges::any_of(binary_ops, [&](const auto& b) { return b.name == op; }));
  }
}

}  // namespace
}  // namespace lockstep::autograd
