#include "lockstep/parallel/reducer.hpp"

#include <cstddef>
#include <numeric>
#include <string>

#include <gtest/gtest.h>

#include "lockstep/autograd/graph_tag.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/comm/errors.hpp"
#include "lockstep/comm/thread_world.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/resident_bytes.hpp"

namespace lockstep::parallel {
namespace {

constexpr TensorOptions f64{.dtype = DType::f64};

/// Three layers of a small network, the same on every rank.
std::vector<NamedParameter> make_parameters() {
  Generator generator(5);
  std::vector<NamedParameter> parameters;
  for (int i = 0; i < 3; ++i)
    parameters.emplace_back("layer" + std::to_string(i),
                            randn({6, 6}, f64, generator).set_requires_grad());
  return parameters;
}

Tensor run(const std::vector<NamedParameter>& parameters, const Tensor& x) {
  Tensor y = x;
  for (const auto& [name, weight] : parameters) y = tanh(linear(y, weight));
  return y;
}

Tensor batch_of(int rank) {
  Generator generator(100 + static_cast<std::uint64_t>(rank));
  return randn({4, 6}, f64, generator);
}

void expect_near(const Tensor& actual, const Tensor& expected) {
  const auto a = actual.to_vector<double>(), b = expected.to_vector<double>();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12);
}

template <class Loss>
Tensor recorded(Reducer& reducer, Reducer::Mode mode, const Loss& loss) {
  const autograd::TagGuard scope = reducer.record_forward(mode);
  return loss();
}

template <class Loss>
void synchronised_backward(Reducer& reducer, const Loss& loss) {
  recorded(reducer, Reducer::Mode::reduce, loss).backward();
}

class ReducerOnThreads : public ::testing::TestWithParam<std::tuple<int, std::size_t>> {};

TEST_P(ReducerOnThreads, AveragesLikeOneProcessOnTheWholeBatch) {
  const auto [ranks, cap] = GetParam();
  const auto reference = make_parameters();
  Tensor total = zeros({}, f64);
  for (int r = 0; r < ranks; ++r) total = total + mean(square(run(reference, batch_of(r))));
  (total / ranks).backward();

  comm::run_ranks(ranks, [&, cap = cap](comm::Communicator& group) {
    const auto parameters = make_parameters();
    Reducer reducer(parameters, CommunicatorPtr(&group), {.bucket_caps = {cap, cap}});
    for (int step = 0; step < 3; ++step) {
      for (const auto& [name, weight] : parameters) autograd::leaf_of(weight).clear_gradient();
      synchronised_backward(reducer,
                            [&] { return mean(square(run(parameters, batch_of(group.rank())))); });
      for (std::size_t i = 0; i < parameters.size(); ++i)
        expect_near(parameters[i].second.grad(), reference[i].second.grad());
    }
    EXPECT_TRUE(reducer.rebuilt());
  });
}
INSTANTIATE_TEST_SUITE_P(RanksAndCaps, ReducerOnThreads,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::Values(1u, 300u, 1u << 20)));

TEST(Reducer, LaunchesBucketsInOrderWhenHooksFireOutOfOrder) {
  comm::run_ranks(2, [](comm::Communicator& group) {
    const auto parameters = make_parameters();
    Reducer reducer(parameters, CommunicatorPtr(&group), {.bucket_caps = {1, 1}});
    // Registration order is 0, 1, 2, so bucket 0 waits for layer2; here it comes last.
    synchronised_backward(reducer, [&] {
      Tensor y = batch_of(group.rank());
      for (const int i : {2, 1, 0})
        y = tanh(linear(y, parameters[static_cast<std::size_t>(i)].second));
      return sum(y);
    });
    ASSERT_EQ(reducer.trace().buckets.size(), 3u);
    for (std::size_t b = 0; b < 3; ++b)
      EXPECT_NE(reducer.trace().buckets[b].label.find("bucket " + std::to_string(b)),
                std::string::npos);
  });
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Ops of its forwards may live on, and are refused for ever.
TEST(Reducer, KeepsNoTextForEachOfItsTags) {
  const std::string reason(256, 'x');
  const std::int64_t before = lockstep::testing::resident_bytes();
  constexpr std::int64_t closed = 100'000;
  for (std::int64_t i = 0; i < closed; ++i) {
    const autograd::GraphTag tag = autograd::new_graph_tag();
    autograd::on_backward_through(tag, [] {});
    autograd::close_graph_tag(tag, reason);
    if (i % 1000 == 0) {
      EXPECT_THROW(autograd::check_open(tag), InvalidArgument);
    }
  }
  EXPECT_LT(lockstep::testing::resident_bytes(), before + 64 * closed);
}
#endif

TEST(Reducer, RebuildsInTheOrderOfRankZero) {
  comm::run_ranks(2, [](comm::Communicator& group) {
    const auto parameters = make_parameters();
    Reducer reducer(parameters, CommunicatorPtr(&group), {.bucket_caps = {1, 1}});
    const std::vector<int> order = group.rank() == 0 ? std::vector{1, 0, 2} : std::vector{0, 1, 2};
    for (int step = 0; step < 2; ++step) {
      synchronised_backward(reducer, [&] {
        Tensor y = batch_of(0);
        for (const int i : order)
          y = tanh(linear(y, parameters[static_cast<std::size_t>(i)].second));
        return sum(y);
      });
    }
    ASSERT_EQ(reducer.buckets().size(), 3u);
    EXPECT_EQ(reducer.buckets()[0].parameters[0], 2u);
    EXPECT_EQ(reducer.buckets()[1].parameters[0], 0u);
    EXPECT_EQ(reducer.buckets()[2].parameters[0], 1u);
  });
}

TEST(Reducer, AccumulatesLocallyUntilASynchronisedBackward) {
  comm::run_ranks(2, [](comm::Communicator& group) {
    const auto parameters = make_parameters();
    Reducer reducer(parameters, CommunicatorPtr(&group));
    const auto loss = [&](int batch) { return sum(run(parameters, batch_of(batch))); };
    recorded(reducer, Reducer::Mode::accumulate, [&] { return loss(group.rank()); }).backward();
    synchronised_backward(reducer, [&] { return loss(2 + group.rank()); });

    const auto reference = make_parameters();
    Tensor total = zeros({}, f64);
    for (int batch = 0; batch < 4; ++batch) total = total + sum(run(reference, batch_of(batch)));
    (total / 2.0).backward();
    for (std::size_t i = 0; i < parameters.size(); ++i)
      expect_near(parameters[i].second.grad(), reference[i].second.grad());
  });
}

TEST(Reducer, NamesParametersThatBackwardDidNotReach) {
  try {
    comm::run_ranks(2, [](comm::Communicator& group) {
      auto parameters = make_parameters();
      Reducer reducer(parameters, CommunicatorPtr(&group));
      const std::vector<NamedParameter> used(parameters.begin(), parameters.begin() + 2);
      synchronised_backward(reducer, [&] { return sum(run(used, batch_of(group.rank()))); });
    });
    FAIL() << "an unused parameter went unnoticed";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("layer2"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("find_unused_parameters"), std::string::npos);
  }
}

TEST(Reducer, TreatsLocallyUnusedParametersAsZeroAndGloballyUnusedOnesAsAbsent) {
  comm::run_ranks(2, [](comm::Communicator& group) {
    const auto parameters = make_parameters();
    Reducer reducer(parameters, CommunicatorPtr(&group), {.find_unused_parameters = true});
    for (int step = 0; step < 2; ++step) {
      for (const auto& [name, weight] : parameters) autograd::leaf_of(weight).clear_gradient();
      // Rank 0 uses layers 0 and 1, rank 1 only layer 0; nobody uses layer 2.
      const auto count = group.rank() == 0 ? 2 : 1;
      const std::vector<NamedParameter> used(parameters.begin(), parameters.begin() + count);
      synchronised_backward(reducer, [&] { return sum(run(used, batch_of(group.rank()))); });
    }
    EXPECT_TRUE(parameters[0].second.grad().defined());
    EXPECT_TRUE(parameters[1].second.grad().defined());
    EXPECT_FALSE(parameters[2].second.grad().defined());

    const auto reference = make_parameters();
    const std::vector<NamedParameter> two(reference.begin(), reference.begin() + 2);
    (sum(run(two, batch_of(0))) / 2.0).backward();
    expect_near(parameters[1].second.grad(), reference[1].second.grad());
  });
}

TEST(Reducer, RefusesABackwardThatByPassedThePreparation) {
  comm::run_ranks(1, [](comm::Communicator& group) {
    const auto parameters = make_parameters();
    Reducer reducer(parameters, CommunicatorPtr(&group));
    EXPECT_THROW(sum(run(parameters, batch_of(0))).backward(), InvalidArgument);
  });
}

TEST(Reducer, NoticesAParameterReplacedAfterTheConstruction) {
  comm::run_ranks(1, [](comm::Communicator& group) {
    auto parameters = make_parameters();
    Reducer reducer(parameters, CommunicatorPtr(&group));
    parameters[1].second.set_requires_grad(false);
    EXPECT_THROW(reducer.check_usable(), InvalidArgument);
  });
}

TEST(Reducer, NamesTheParameterThatDiffersBetweenRanks) {
  try {
    comm::run_ranks(2, [](comm::Communicator& group) {
      std::vector<NamedParameter> parameters = make_parameters();
      if (group.rank() == 1) parameters[1].second = zeros({6, 7}, f64).set_requires_grad();
      Reducer reducer(parameters, CommunicatorPtr(&group));
    });
    FAIL() << "different models went unnoticed";
  } catch (const comm::Mismatch& error) {
    EXPECT_NE(std::string(error.what()).find("layer1 f64 [6, 7]"), std::string::npos)
        << error.what();
  }
}

TEST(Reducer, GivesGradientsBackWhenItEnds) {
  comm::run_ranks(1, [](comm::Communicator& group) {
    const auto parameters = make_parameters();
    {
      Reducer reducer(parameters, CommunicatorPtr(&group));
      synchronised_backward(reducer, [&] { return sum(run(parameters, batch_of(0))); });
    }
    EXPECT_TRUE(parameters[0].second.grad().defined());
    sum(run(parameters, batch_of(0))).backward();
  });
}

}  // namespace
}  // namespace lockstep::parallel
