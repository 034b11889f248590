#include "lockstep/autograd/cast_cache.hpp"

#include <atomic>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/amp/autocast.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/op_call.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/memory/allocator.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/place.hpp"

namespace lockstep::amp {
namespace {

/// Counts conversions of the calling thread.
class CastCount final : public TraceSink {
 public:
  CastCount() { add_trace_sink(*this); }
  ~CastCount() override { remove_trace_sink(*this); }
  void begin(std::string_view name, TracePhase) noexcept override {
    if (name == "to" && std::this_thread::get_id() == thread_) ++count_;
  }
  void end() noexcept override {}
  /// Those since the last call.
  int take() { return std::exchange(count_, 0); }

 private:
  std::thread::id thread_ = std::this_thread::get_id();
  int count_ = 0;
};

class CastCache : public ::testing::TestWithParam<testing::Place> {
 protected:
  void SetUp() override {
    if (testing::is_missing(GetParam())) GTEST_SKIP() << "no CUDA device on this machine";
    place_.emplace(GetParam());
    weight_ = parameter({24, 32});
    x_ = randn({4, 32}, {DType::f32, device()}).to(DType::bf16);
  }
  Device device() const { return GetParam().device; }
  Tensor parameter(const Shape& shape) const {
    return randn(shape, {DType::f32, device()}).set_requires_grad();
  }
  /// x weight^T without autocast.
  std::vector<float> expected() const {
    return linear(x_, weight_.detach().to(DType::bf16)).to_vector<float>();
  }

  /// Conversions one by one when the leaf is used in bf16.
  static int casts_of(const Tensor& leaf) {
    CastCount casts;
    const Tensor cast = autograd::cast_operand(leaf, DType::bf16);
    const int made = casts.take();
    EXPECT_EQ(cast.to_vector<float>(), leaf.detach().to(DType::bf16).to_vector<float>());
    return made;
  }

  std::optional<testing::PlaceScope> place_;
  Tensor weight_, x_;
};

TEST_P(CastCache, ConvertsAWeightOnceInAScope) {
  CastCount casts;
  const Autocast mixed(DType::bf16);
  for (int use = 0; use < 3; ++use) EXPECT_EQ(linear(x_, weight_).to_vector<float>(), expected());
  EXPECT_EQ(casts.take(), 1 + 3) << "one for the op, three for what is expected";
}

TEST_P(CastCache, ConvertsAStepsWeightsOnceThoughItHasSeveralMicroBatches) {
  const Tensor first = parameter({32, 16}), second = parameter({8, 32});
  const Tensor bias = parameter({32});
  optim::SGD optimizer(std::vector{first, second, bias}, {.lr = 0.1});
  CastCount casts;
  for (int step = 0; step < 3; ++step) {
    {
      const Autocast mixed(DType::bf16);
      for (int micro_batch = 0; micro_batch < 4; ++micro_batch) {
        const Tensor x = randn({4, 16}, {DType::f32, device()}).to(DType::bf16);
        casts.take();
        const Tensor y = linear(gelu(linear(x, first, bias)), second);
        EXPECT_EQ(casts.take(), micro_batch == 0 ? 3 : 0) << "micro-batch " << micro_batch;
        sum(y).backward();
      }
    }
    optimizer.step();
    optimizer.zero_grad();
  }
}

TEST_P(CastCache, ConvertsASharedWeightOnceAndAddsItsGradients) {
  Tensor table = parameter({16, 16});
  const auto gradient = [&](bool cache) {
    table.set_grad({});
    const Autocast mixed(DType::bf16, {.cache_enabled = cache});
    const Tensor x = full({2, 16}, 0.5, {DType::bf16, device()});
    sum(linear(linear(x, table), table)).backward();
    return table.grad().to_vector<float>();
  };
  CastCount casts;
  const auto cached = gradient(true);
  const int with = casts.take();
  EXPECT_EQ(cached, gradient(false));
  EXPECT_EQ(casts.take(), with + 1);
}

TEST_P(CastCache, ConvertsAgainWhatWasWrittenTo) {
  const Autocast mixed(DType::bf16);
  linear(x_, weight_);
  const auto expect_new_values = [&](const char* after) {
    EXPECT_EQ(linear(x_, weight_).to_vector<float>(), expected()) << "after " << after;
  };
  no_grad([&] { weight_.mul_(2.0); });
  expect_new_values("an op in place");
  no_grad([&] { weight_.copy_(ones({24, 32}, weight_.options())); });
  expect_new_values("copy_");
  weight_.set_data(randn({24, 32}, weight_.options()));
  expect_new_values("set_data");
  no_grad([&] { weight_.slice(0, 1, 2).fill_(3.0); });
  expect_new_values("a write through a view");
  optim::AdamW optimizer(std::vector{weight_}, {.lr = 0.5});
  sum(linear(x_, weight_)).backward();
  optimizer.step();
  expect_new_values("an optimizer's step");
}

TEST_P(CastCache, ConvertsLeavesTogetherAsOneByOne) {
  const Tensor other = parameter({7}), wide = parameter({3}).detach().to(DType::f64);
  const std::vector<Tensor> leaves{weight_, other, wide, x_};
  autograd::cast_together(leaves, DType::bf16);
  EXPECT_EQ(casts_of(other), 1) << "no scope keeps casts";
  const Autocast mixed(DType::bf16);
  autograd::cast_together(leaves, DType::bf16);
  EXPECT_TRUE(autograd::cast_among(leaves).empty()) << "nothing has used one of them";
  const auto wanted = expected();
  EXPECT_EQ(casts_of(other), 0) << "all are rounded by one call";
  const std::vector<Tensor> found = autograd::cast_among(leaves);
  ASSERT_EQ(found.size(), 2u) << "the parameters in f32";
  EXPECT_TRUE(found[0].is_same(weight_) && found[1].is_same(other));
  EXPECT_EQ(casts_of(weight_), 0);
  EXPECT_EQ(linear(x_, weight_).to_vector<float>(), wanted);
  no_grad([&] { weight_.mul_(2.0); });
  EXPECT_EQ(casts_of(weight_), 1) << "what was written to is converted again";
  EXPECT_EQ(linear(x_, weight_).to_vector<float>(), expected());
}

TEST_P(CastCache, ConvertsTogetherWhatTheFirstUseFinds) {
  const Autocast mixed(DType::bf16);
  autograd::cast_together(std::vector{weight_}, DType::bf16);
  if (device().is_cpu())
    weight_.data<float>()[0] = 7.0F;  // no version tells of it
  else
    no_grad([&] { weight_.mul_(2.0); });
  EXPECT_EQ(linear(x_, weight_).to_vector<float>(), expected());
}

TEST_P(CastCache, LeavesAloneWhatIsToBeConvertedTogetherToAnotherDType) {
  const Autocast mixed(DType::bf16);
  autograd::cast_together(std::vector{weight_, parameter({2})}, DType::f16);
  EXPECT_EQ(casts_of(weight_), 1);
  EXPECT_EQ(linear(x_, weight_).to_vector<float>(), expected());
}

TEST_P(CastCache, ServesEvaluationAndTrainingAlike) {
  const Autocast mixed(DType::bf16);
  no_grad([&] { linear(x_, weight_); });
  CastCount casts;
  const Tensor y = linear(x_, weight_);
  EXPECT_EQ(casts.take(), 0);
  sum(y).backward();
  ASSERT_TRUE(weight_.grad().defined()) << "the cast was made where nothing was recorded";
  EXPECT_EQ(weight_.grad().dtype(), DType::f32);
  weight_.set_requires_grad(false);
  casts.take();
  EXPECT_FALSE(linear(x_, weight_).requires_grad());
  EXPECT_EQ(casts.take(), 0) << "a frozen weight stays cast";
}

TEST_P(CastCache, KeepsNoCastOfWhatIsNoParameter) {
  const Autocast mixed(DType::bf16);
  const Tensor plain = weight_.detach();
  CastCount casts;
  linear(x_, plain);
  linear(x_, plain);
  linear(x_, weight_ * 2.0);
  EXPECT_EQ(casts.take(), 3);
}

TEST_P(CastCache, MayBeSwitchedOff) {
  const Autocast mixed(DType::bf16, {.cache_enabled = false});
  CastCount casts;
  linear(x_, weight_);
  linear(x_, weight_);
  EXPECT_EQ(casts.take(), 2);
}

TEST_P(CastCache, LastsAsLongAsTheOutermostScope) {
  const auto live = [&] { return device_allocator(device()).statistics().live_bytes; };
  const auto before = live();
  CastCount casts;
  {
    const Autocast outer(DType::bf16);
    {
      const Autocast inner(DType::bf16);
      linear(x_, weight_);
    }
    {
      const Autocast off(DType::bf16, {.enabled = false});
      linear(x_.to(DType::f32), weight_);
    }
    casts.take();
    linear(x_, weight_);
    EXPECT_EQ(casts.take(), 0);
    EXPECT_GT(live(), before);
  }
  EXPECT_EQ(live(), before);
  const Autocast next(DType::bf16);
  linear(x_, weight_);
  EXPECT_EQ(casts.take(), 1);
}

TEST_P(CastCache, HoldsTheCastsOfTwoDTypesApart) {
  const Autocast mixed(DType::bf16);
  linear(x_, weight_);
  const Autocast half(DType::f16);
  EXPECT_EQ(linear(x_, weight_).dtype(), DType::f16);
}

constexpr OpDescriptor kept_op{.name = "kept", .autocast = AutocastPolicy::lower_precision};

/// Gives back what autocast made of its operand.
Tensor kept(const Tensor& x) {
  const autograd::OpCall call(kept_op, x);
  if (!call.recording()) return call[0];
  return call.record(call[0],
                     [](const Tensor& dy, autograd::InputGradients& dx) { dx.set(0, dy * 3.0); });
}

TEST_P(CastCache, IsNotChangedByWhatIsMadeOfACast) {
  const Autocast mixed(DType::bf16);
  const Tensor y = kept(weight_);
  no_grad([&] { Tensor(y).fill_(7.0); });
  EXPECT_EQ(linear(x_, weight_).to_vector<float>(), expected());
  sum(kept(weight_)).backward();
  EXPECT_EQ(weight_.grad().to_vector<float>(), std::vector<float>(24 * 32, 3.0F));
}

TEST_P(CastCache, ConvertsAgainOnAnotherStream) {
  const Autocast mixed(DType::bf16);
  linear(x_, weight_);
  const Stream other(device());
  if (other.ref() == current_stream(device())) return;  // the CPU has one
  synchronize(current_stream(device()));
  CastCount casts;
  const StreamGuard guard(other);
  linear(x_, weight_);
  EXPECT_EQ(casts.take(), 1) << "nothing orders the first one before";
  other.synchronize();
}

TEST_P(CastCache, BelongsToItsThread) {
  // Each thread has weights and scopes of its own; the casts of one must not reach the other.
  std::atomic<int> wrong = 0;
  const auto train = [&](double value) {
    const Tensor weight = full({8, 8}, value, {DType::f32, device()}).set_requires_grad();
    const Tensor x = ones({1, 8}, {DType::bf16, device()});
    for (int step = 0; step < 20; ++step) {
      const Autocast mixed(DType::bf16);
      for (int use = 0; use < 2; ++use)
        if (linear(x, weight).to_vector<float>()[0] != 8 * value) ++wrong;
    }
  };
  std::thread one(train, 0.5), two(train, 2.0);
  one.join();
  two.join();
  EXPECT_EQ(wrong, 0);
}

/// Multiplies in 16 bits once more where the thread has nothing else left.
struct ProductAtTheEnd {
  Tensor weight, *product;
  ~ProductAtTheEnd() {
    const Autocast mixed(DType::bf16);
    *product = matmul(ones({2, 2}), weight);
  }
};

TEST(CastCacheOfAThread, ServesDestructorsOfWhatAThreadMadeBeforeIt) {
  Tensor product;
  std::thread([&] {
    static thread_local const ProductAtTheEnd end{ones({2, 2}).set_requires_grad(), &product};
    const Autocast mixed(DType::bf16);
    product = matmul(ones({2, 2}), end.weight).sum();
  }).join();
  EXPECT_EQ(product.to(DType::f32).to_vector<float>(), (std::vector<float>{2, 2, 2, 2}));
}

INSTANTIATE_TEST_SUITE_P(Places, CastCache, ::testing::ValuesIn(testing::places()),
                         testing::place_name);

}  // namespace
}  // namespace lockstep::amp
