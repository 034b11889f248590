// What clipping must compute for a model whose parameters are spread over the ranks of any group.

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/optim/clip.hpp"
#include "parallel/contracts.hpp"
#include "parallel/ranks.hpp"

namespace lockstep::parallel::testing {
namespace {

using ::testing::HasSubstr;

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ClipContract);

// A parameter with a gradient that depends on a seed alone.
Tensor with_gradient(const Shape& shape, int seed) {
  Tensor x = zeros(shape, {.dtype = DType::f64, .device = device_of_rank}).set_requires_grad();
  x.set_grad(values(shape, seed));
  return x;
}

TEST_P(ClipContract, TakesTheNormOverAllRanksAndCountsReplicatedParametersOnce) {
  run([](Communicator& group) {
    const std::pair<double, double> cases[] = {
        {2, 0.5}, {2, 100}, {1, 0.5}, {3, 0.5}, {std::numeric_limits<double>::infinity(), 0.5}};
    for (const auto& [norm_type, limit] : cases) {
      const std::vector<Tensor> own{with_gradient({3, 4}, group.rank()), with_gradient({5}, 50),
                                    zeros({2}).set_requires_grad()};
      std::vector<Tensor> alone{with_gradient({5}, 50)};
      for (int rank = 0; rank < group.size(); ++rank) alone.push_back(with_gradient({3, 4}, rank));
      const Tensor norm = optim::clip_grad_norm_(own, limit,
                                                 {.norm_type = norm_type,
                                                  .group = share(group),
                                                  .replicated = std::span(own).subspan(1, 1)});
      expect_close(norm, optim::clip_grad_norm_(alone, limit, {.norm_type = norm_type}));
      expect_close(own[0].grad(), alone[1 + static_cast<std::size_t>(group.rank())].grad());
      expect_close(own[1].grad(), alone[0].grad());
    }
  });
}

// Else one rank would see that its gradients are no numbers, and the others train on.
TEST_P(ClipContract, TellsEveryRankOfANumberThatIsNone) {
  run([](Communicator& group) {
    const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
    for (const double norm_type : {1.0, 2.0, infinity}) {
      const std::vector<Tensor> own{with_gradient({6}, group.rank())};
      if (group.rank() == 0) own[0].grad()[2].fill_(nan);
      const Tensor norm =
          optim::clip_grad_norm_(own, 1.0, {.norm_type = norm_type, .group = share(group)});
      EXPECT_TRUE(std::isnan(norm.item())) << norm_type;
    }
    const std::vector<Tensor> own{with_gradient({6}, group.rank())};
    if (group.rank() == 0) own[0].grad()[2].fill_(-infinity);
    const Tensor norm =
        optim::clip_grad_norm_(own, 1.0, {.norm_type = infinity, .group = share(group)});
    EXPECT_EQ(norm.item(), infinity);
  });
}

TEST_P(ClipContract, LetsRanksWithoutGradientsJoin) {
  run([](Communicator& group) {
    std::vector<Tensor> own;
    if (group.rank() == group.size() - 1) own.push_back(with_gradient({6}, 1));
    const std::vector<Tensor> alone{with_gradient({6}, 1)};
    const Tensor norm = optim::clip_grad_norm_(own, 0.1, {.group = share(group)});
    expect_close(norm, optim::clip_grad_norm_(alone, 0.1));
    if (!own.empty()) expect_close(own[0].grad(), alone[0].grad());
  });
}

TEST_P(ClipContract, RefusesReplicatedTensorsThatAreNoParameters) {
  run([](Communicator& group) {
    const std::vector<Tensor> own{with_gradient({6}, 1)}, others{with_gradient({6}, 1)};
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  optim::clip_grad_norm_(own, 1.0, {.group = share(group), .replicated = others});
                }),
                HasSubstr("1 tensors are said to be replicated, but 0 of them"));
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
