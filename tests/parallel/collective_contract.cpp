// What collectives on tensors must compute over any communicator: results and gradients are
// compared with one process that holds the tensors of all ranks.

#include <gmock/gmock.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/comm/errors.hpp"
#include "lockstep/parallel/collectives.hpp"
#include "lockstep/parallel/tensor_work.hpp"
#include "parallel/contracts.hpp"
#include "parallel/ranks.hpp"

namespace lockstep::parallel::testing {
namespace {

using ::testing::HasSubstr;

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CollectiveContract);

// Every rank's operand in one process, as leaves.
std::vector<Tensor> operands_of_all(const Communicator& group, const Shape& shape) {
  std::vector<Tensor> all;
  for (int rank = 0; rank < group.size(); ++rank) all.push_back(leaf(shape, rank));
  return all;
}

Tensor sum_of(const std::vector<Tensor>& tensors) {
  Tensor sum = tensors[0];
  for (std::size_t i = 1; i < tensors.size(); ++i) sum = sum + tensors[i];
  return sum;
}

// A loss of which each element matters in its own way; rank's own where `rank` is not 0.
Tensor loss_of(const Tensor& y, int rank = 0) {
  return (tanh(y) * values(y.shape(), 100 + rank)).sum();
}

Tensor part_of(const Tensor& x, int index, int parts, std::int64_t dim) {
  const std::int64_t extent = x.size(dim) / parts;
  return x.slice(dim, index * extent, (index + 1) * extent);
}

// Runs `op` on this rank's operand and `reference` on those of all ranks, for both kinds of
// gradient: with one loss that all ranks compute, and with one loss a rank, which add up.
void expect_same_result_everywhere(
    Communicator& group, const Shape& shape,
    const std::function<Tensor(const Tensor&, ResultGradient)>& op,
    const std::function<Tensor(const std::vector<Tensor>&)>& reference) {
  const auto own = static_cast<std::size_t>(group.rank());
  for (const auto kind : {ResultGradient::replicated, ResultGradient::partial}) {
    const bool partial = kind == ResultGradient::partial;
    SCOPED_TRACE(partial ? "partial" : "replicated");
    const Tensor x = leaf(shape, group.rank());
    const std::vector<Tensor> all = operands_of_all(group, shape);
    const Tensor y = op(x, kind), expected = reference(all);
    expect_close(y, expected);
    loss_of(y, partial ? group.rank() : 0).backward();
    Tensor total = loss_of(expected);
    for (int rank = 1; partial && rank < group.size(); ++rank)
      total = total + loss_of(expected, rank);
    total.backward();
    expect_close(x.grad(), all[own].grad().defined() ? all[own].grad() : zeros(shape, x.options()));
  }
}

TEST_P(CollectiveContract, AllReduceHasTheGradientOfASum) {
  run([](Communicator& group) {
    expect_same_result_everywhere(
        group, {3, 4},
        [&](const Tensor& x, ResultGradient kind) { return all_reduce(x, share(group), kind); },
        sum_of);
  });
}

TEST_P(CollectiveContract, AllReduceScalesTheGradientOfAnAverage) {
  run([](Communicator& group) {
    expect_same_result_everywhere(
        group, {5},
        [&](const Tensor& x, ResultGradient kind) {
          return all_reduce(x, share(group), kind, comm::ReduceOp::average());
        },
        [&](const std::vector<Tensor>& all) { return sum_of(all) * (1.0 / group.size()); });
  });
}

TEST_P(CollectiveContract, AllReduceScalesTheGradientOfAWeightedSum) {
  run([](Communicator& group) {
    expect_same_result_everywhere(
        group, {2, 2},
        [&](const Tensor& x, ResultGradient kind) {
          return all_reduce(x, share(group), kind, comm::ReduceOp::scaled_sum(1.0 + group.rank()));
        },
        [&](std::vector<Tensor> all) {
          for (std::size_t i = 0; i < all.size(); ++i) all[i] = all[i] * (1.0 + i);
          return sum_of(all);
        });
  });
}

TEST_P(CollectiveContract, AllGatherHasTheGradientOfCatAlongAnyDimension) {
  run([](Communicator& group) {
    for (const std::int64_t dim : {0, 1, -1}) {
      SCOPED_TRACE(dim);
      expect_same_result_everywhere(
          group, {2, 3, 4},
          [&](const Tensor& x, ResultGradient kind) {
            return all_gather(x, share(group), dim, kind);
          },
          [&](const std::vector<Tensor>& all) { return cat(all, dim); });
    }
  });
}

TEST_P(CollectiveContract, BroadcastSendsTheGradientToRoot) {
  run([](Communicator& group) {
    const int root = group.size() - 1;
    expect_same_result_everywhere(
        group, {3, 2},
        [&](const Tensor& x, ResultGradient kind) {
          return broadcast(x, share(group), root, kind);
        },
        [&](const std::vector<Tensor>& all) { return all.back() * 1.0; });
  });
}

TEST_P(CollectiveContract, ReduceScatterHasTheGradientOfASumsPart) {
  run([](Communicator& group) {
    const int n = group.size();
    for (const std::int64_t dim : {0, 1, -1}) {
      for (const bool average : {false, true}) {
        const Shape shape{2 * n, n, 3 * n};
        const Tensor x = leaf(shape, group.rank());
        const Tensor y = reduce_scatter(
            x, share(group), dim, average ? comm::ReduceOp::average() : comm::ReduceOp::sum());
        loss_of(y, group.rank()).backward();
        const std::vector<Tensor> all = operands_of_all(group, shape);
        const Tensor sum = sum_of(all) * (average ? 1.0 / n : 1.0);
        expect_close(y, part_of(sum, group.rank(), n, dim));
        Tensor total = loss_of(part_of(sum, 0, n, dim));
        for (int rank = 1; rank < n; ++rank)
          total = total + loss_of(part_of(sum, rank, n, dim), rank);
        total.backward();
        expect_close(x.grad(), all[static_cast<std::size_t>(group.rank())].grad());
      }
    }
  });
}

TEST_P(CollectiveContract, ShardGivesAllRanksTheWholeGradient) {
  run([](Communicator& group) {
    const int n = group.size();
    for (const std::int64_t dim : {0, 1}) {
      const Tensor x = leaf({2 * n, 3 * n}, 5), alone = leaf({2 * n, 3 * n}, 5);
      const Tensor y = shard(x, share(group), dim);
      expect_close(y, part_of(alone, group.rank(), n, dim));
      loss_of(y, group.rank()).backward();
      Tensor total = loss_of(part_of(alone, 0, n, dim));
      for (int rank = 1; rank < n; ++rank)
        total = total + loss_of(part_of(alone, rank, n, dim), rank);
      total.backward();
      expect_close(x.grad(), alone.grad());
    }
  });
}

// A two-layer perceptron, the first layer's outputs and the second's inputs shared out: the
// layout of Megatron-LM, whose pair of conjugate operators leaves one collective each way.
TEST_P(CollectiveContract, ConjugatePairTrainsASharedOutPerceptronAsOneProcess) {
  run([](Communicator& group) {
    const int n = group.size(), rank = group.rank();
    const CommunicatorPtr shared = share(group);
    const Tensor x = leaf({5, 4}, 1), x_alone = leaf({5, 4}, 1);
    const Tensor first = leaf({4, 6 * n}, 2), second = leaf({6 * n, 3}, 3);
    const Tensor first_part = part_of(first, rank, n, 1).clone().detach().set_requires_grad();
    const Tensor second_part = part_of(second, rank, n, 0).clone().detach().set_requires_grad();

    const Tensor hidden = tanh(matmul(copy_to_group(x, shared), first_part));
    const Tensor y = all_reduce(matmul(hidden, second_part), shared, ResultGradient::replicated);
    const Tensor y_alone = matmul(tanh(matmul(x_alone, first)), second);
    expect_close(y, y_alone);
    loss_of(y).backward();
    loss_of(y_alone).backward();
    expect_close(x.grad(), x_alone.grad());
    expect_close(first_part.grad(), part_of(first.grad(), rank, n, 1));
    expect_close(second_part.grad(), part_of(second.grad(), rank, n, 0));
  });
}

// The same with rows of the input and output shared out too: all-gather and reduce-scatter take
// the place of the pair.
TEST_P(CollectiveContract, SequencePairTrainsASharedOutPerceptronAsOneProcess) {
  run([](Communicator& group) {
    const int n = group.size(), rank = group.rank();
    const CommunicatorPtr shared = share(group);
    const Tensor whole = leaf({2 * n, 4}, 1);
    const Tensor x = part_of(whole, rank, n, 0).clone().detach().set_requires_grad();
    const Tensor first = leaf({4, 6 * n}, 2), second = leaf({6 * n, 3}, 3);
    const Tensor first_part = part_of(first, rank, n, 1).clone().detach().set_requires_grad();
    const Tensor second_part = part_of(second, rank, n, 0).clone().detach().set_requires_grad();

    const Tensor rows = all_gather(x, shared, 0, ResultGradient::partial);
    const Tensor y = reduce_scatter(matmul(tanh(matmul(rows, first_part)), second_part), shared, 0);
    const Tensor y_alone = matmul(tanh(matmul(whole, first)), second);
    expect_close(y, part_of(y_alone, rank, n, 0));
    (tanh(y) * part_of(values({2 * n, 3}, 100), rank, n, 0)).sum().backward();
    loss_of(y_alone).backward();
    expect_close(x.grad(), part_of(whole.grad(), rank, n, 0));
    expect_close(first_part.grad(), part_of(first.grad(), rank, n, 1));
    expect_close(second_part.grad(), part_of(second.grad(), rank, n, 0));
  });
}

TEST_P(CollectiveContract, LeavesTheGradientOfTheResultAsItIs) {
  run([](Communicator& group) {
    const Tensor x = leaf({4}, 1), other = leaf({4}, 2);
    const Tensor dy = values({4}, 3);
    (copy_to_group(x, share(group)) + other).backward(dy);  // both operands get the same tensor
    expect_close(other.grad(), values({4}, 3));
    expect_close(x.grad(), values({4}, 3) * static_cast<double>(group.size()));
  });
}

TEST_P(CollectiveContract, TakesTensorsThatAreNotRowMajor) {
  run([](Communicator& group) {
    const Tensor x = values({3, 4}, group.rank()).transpose(0, 1);
    std::vector<Tensor> all;
    for (int rank = 0; rank < group.size(); ++rank)
      all.push_back(values({3, 4}, rank).transpose(0, 1));
    expect_close(all_reduce(x, share(group), ResultGradient::partial), sum_of(all));
    expect_close(all_gather(x, share(group), 0, ResultGradient::partial), cat(all, 0));
  });
}

TEST_P(CollectiveContract, RunsWhileTheCallerGoesOn) {
  run([](Communicator& group) {
    const Tensor x = values({2, 3}, group.rank());
    TensorWork gathering = all_gather_async(x, group);
    TensorWork reducing = all_reduce_async(x, group, comm::ReduceOp::max());
    TensorWork sending = broadcast_async(x, group, 0);
    const Tensor gathered = gathering.wait();
    TensorWork scattering = reduce_scatter_async(gathered, group);
    const std::vector<Tensor> all = operands_of_all(group, {2, 3});
    expect_close(gathered, cat(all, 0));
    expect_close(sending.wait(), all[0]);
    expect_close(scattering.wait(), x * static_cast<double>(group.size()));
    std::vector<double> largest = all[0].template to_vector<double>();
    for (const Tensor& one : all) {
      const auto candidates = one.template to_vector<double>();
      for (std::size_t i = 0; i < largest.size(); ++i)
        largest[i] = std::max(largest[i], candidates[i]);
    }
    EXPECT_EQ(reducing.wait().template to_vector<double>(), largest);
    EXPECT_TRUE(gathering.wait().is_same(gathered));
  });
}

TEST_P(CollectiveContract, HoldsMemoryThatNobodyElseHolds) {
  run([](Communicator& group) {
    constexpr std::int64_t count = 1 << 16;
    const TensorOptions options{.dtype = DType::f64, .device = device_of_rank};
    const auto ones = [&](std::int64_t elements) { return full({elements}, 1.0, options); };
    // What each of these leaves behind would be the next one's, and its values wrong.
    for (int round = 0; round < 8; ++round) {
      { const TensorWork dropped = all_gather_async(ones(count), group); }
      { const TensorWork dropped = all_reduce_async(ones(count), group); }
      full({count}, 7.0, options);
      TensorWork kept = all_gather_async(ones(count), group);
      full({count}, 9.0, options);
      full({count * group.size()}, 9.0, options);
      const Tensor gathered = kept.wait();
      EXPECT_EQ(gathered.sum().item(), static_cast<double>(count * group.size()));
    }
  });
}

TEST_P(CollectiveContract, RefusesOperandsThatDoNotFit) {
  run([](Communicator& group) {
    const CommunicatorPtr shared = share(group);
    const Tensor x = leaf({group.size() + 1, 2}, 1);
    const auto kind = ResultGradient::partial;
    if (group.size() > 1) {
      EXPECT_THAT(message_of<InvalidArgument>([&] { reduce_scatter(x, shared, 0); }),
                  HasSubstr("does not divide among"));
    }
    EXPECT_THROW(all_gather(x, shared, 2, kind), InvalidArgument);
    EXPECT_THROW(shard(x, shared, -3), InvalidArgument);
    EXPECT_THAT(
        message_of<Unsupported>([&] { all_reduce(x, shared, kind, comm::ReduceOp::max()); }),
        HasSubstr("no gradient of max"));
    EXPECT_THAT(message_of<InvalidArgument>([&] { all_reduce(x, {}, kind); }),
                HasSubstr("no group"));
    EXPECT_THAT(message_of<InvalidArgument>([&] { static_cast<void>(all_reduce_async(x, group)); }),
                HasSubstr("is not recorded"));
    const NoGradGuard no_recording;
    EXPECT_EQ(all_reduce(x, shared, kind, comm::ReduceOp::max()).shape(), x.shape());
  });
}

// For communicators that compare the labels of collectives.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ComparedCollectives);

TEST_P(ComparedCollectives, RefusesShapesThatDifferOnEveryRank) {
  run([](Communicator& group) {
    if (group.size() == 1) return;
    const Tensor x = values(group.rank() == 0 ? Shape{2, 3} : Shape{3, 2}, 1);  // as many elements
    const std::string message =
        message_of<comm::Mismatch>([&] { all_reduce(x, share(group), ResultGradient::partial); });
    EXPECT_THAT(message, HasSubstr("all_reduce of [2, 3]"));
    EXPECT_THAT(message, HasSubstr("all_reduce of [3, 2]"));
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
