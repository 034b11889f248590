// What every communicator must do, over buffers on the host.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/contracts.hpp"
#include "comm/expectations.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/errors.hpp"
#include "lockstep/comm/host_values.hpp"

namespace lockstep::comm {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommunicatorContract);

TEST_P(CommunicatorContract, AllReduceSumsExactlyForEverySizeAndDtype) {
  run([](Communicator& group) {
    for (const std::int64_t size : contract_sizes)
      for_each_dtype([&](auto tag) {
        using T = typename decltype(tag)::type;
        auto values = contract_values<T>(group.rank(), size);
        group.all_reduce(Buffer(std::span(values))).wait();
        EXPECT_EQ(count_wrong(values, ReduceKind::sum, group.size()), 0)
            << size << ' ' << dtype_of<T>;
      });
  });
}

TEST_P(CommunicatorContract, AllReduceAppliesEveryReduction) {
  run([](Communicator& group) {
    for (const std::int64_t size : {7, 65537})
      for (const ReduceOp reduction :
           {ReduceOp::average(), ReduceOp::min(), ReduceOp::max(), ReduceOp::product()})
        for_each_dtype([&](auto tag) {
          using T = typename decltype(tag)::type;
          auto values = contract_values<T>(group.rank(), size);
          group.all_reduce(Buffer(std::span(values)), reduction).wait();
          EXPECT_EQ(count_wrong(values, reduction.kind, group.size()), 0)
              << size << ' ' << dtype_of<T> << ' ' << reduction.kind;
        });
  });
}

template <class T>
void expect_weighed_sums(Communicator& group, std::size_t size) {
  const auto as_t = [](double value) { return static_cast<T>(static_cast<float>(value)); };
  const auto weight = ReduceOp::scaled_sum(0.5 * (group.rank() + 1));
  double expected = 0;
  for (int r = 1; r <= group.size(); ++r) expected += 0.5 * r * r;
  std::vector<T> values(size, as_t(group.rank() + 1)), part(size);
  const std::vector<T> all(size * static_cast<std::size_t>(group.size()), values[0]);
  group.reduce_scatter(ConstBuffer(std::span(all)), Buffer(std::span(part)), weight).wait();
  EXPECT_THAT(part, ::testing::Each(as_t(expected))) << size << ' ' << dtype_of<T>;
  group.all_reduce(Buffer(std::span(values)), weight).wait();
  EXPECT_THAT(values, ::testing::Each(as_t(expected))) << size << ' ' << dtype_of<T>;
}

TEST_P(CommunicatorContract, ScaledSumWeighsEachRank) {
  run([](Communicator& group) {
    for (const std::size_t size : {5, 40'001}) {
      expect_weighed_sums<float>(group, size);
      expect_weighed_sums<double>(group, size);
      expect_weighed_sums<Half>(group, size);
      expect_weighed_sums<BFloat16>(group, size);
    }
  });
}

TEST_P(CommunicatorContract, SumsKeepNaN) {
  run([](Communicator& group) {
    for (const ReduceOp& reduction : {ReduceOp::sum(), ReduceOp::average()})
      expect_nan_is_kept(group, reduction);
  });
}

TEST_P(CommunicatorContract, AllReduceTouchesNothingAroundAnUnalignedBuffer) {
  run([](Communicator& group) {
    for (const std::size_t size : {13, 70'001}) {
      std::vector<float> values(size + 2, 1.0f);
      group.all_reduce(Buffer(std::span(values).subspan(1, size))).wait();
      EXPECT_EQ(values.front(), 1.0f);
      EXPECT_EQ(values.back(), 1.0f);
      EXPECT_EQ(std::accumulate(values.begin(), values.end(), 0.0),
                2.0 + static_cast<double>(size) * group.size());
    }
  });
}

TEST_P(CommunicatorContract, ReduceScatterLeavesEachRankItsPart) {
  run([](Communicator& group) {
    for (const std::int64_t part : {0, 1, 333, 100'003}) {
      const auto input = contract_values<float>(group.rank(), part * group.size());
      for (const ReduceOp reduction : {ReduceOp::sum(), ReduceOp::average()}) {
        std::vector<float> output(static_cast<std::size_t>(part));
        group.reduce_scatter(ConstBuffer(std::span(input)), Buffer(std::span(output)), reduction)
            .wait();
        EXPECT_EQ(count_wrong(output, reduction.kind, group.size(), part * group.rank()), 0)
            << part << ' ' << reduction.kind;
      }
    }
  });
}

// A factor that was rounded to the dtype shifts all elements the same way; rounding of the results
// does not. 1/3 in bf16 is 0.2 % too much.
template <class T>
void expect_no_bias(Communicator& group, ReduceOp reduction, double factor) {
  constexpr std::size_t part = 1024;
  const auto value = [](std::size_t i, int rank) {
    const auto mixed = (i * 2654435761U + static_cast<std::size_t>(rank) * 40503U) >> 7;
    return static_cast<T>(1.0F + static_cast<float>(mixed % 1024) / 1024);
  };
  std::vector<T> all, scattered(part);
  std::vector<double> expected;
  for (std::size_t i = 0; i < part * static_cast<std::size_t>(group.size()); ++i) {
    all.push_back(value(i, group.rank()));
    double sum = 0;
    for (int rank = 0; rank < group.size(); ++rank)
      sum += static_cast<double>(static_cast<float>(value(i, rank)));
    expected.push_back(factor * sum);
  }
  const auto bias = [&](const std::vector<T>& values, std::size_t begin) {
    double error = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      error += static_cast<double>(static_cast<float>(values[i])) / expected[begin + i] - 1;
    return std::abs(error / static_cast<double>(values.size()));
  };
  const std::vector<T> before = all;
  group.reduce_scatter(ConstBuffer(std::span(all)), Buffer(std::span(scattered)), reduction)
      .synchronize();
  EXPECT_LT(bias(scattered, part * static_cast<std::size_t>(group.rank())), 5e-4);
  EXPECT_EQ(std::memcmp(all.data(), before.data(), all.size() * sizeof(T)), 0);
  group.all_reduce(Buffer(std::span(all)), reduction).synchronize();
  EXPECT_LT(bias(all, 0), 5e-4);
}

TEST_P(CommunicatorContract, FactorsDoNotBiasSmallFloats) {
  run([](Communicator& group) {
    expect_no_bias<BFloat16>(group, ReduceOp::average(), 1.0 / group.size());
    expect_no_bias<Half>(group, ReduceOp::average(), 1.0 / group.size());
    expect_no_bias<BFloat16>(group, ReduceOp::scaled_sum(0.3), 0.3);
    expect_no_bias<Half>(group, ReduceOp::scaled_sum(0.3), 0.3);
  });
}

TEST_P(CommunicatorContract, ReduceScatterTakesUnevenPartsInPlace) {
  run([](Communicator& group) {
    for (const std::int64_t base : {2, 50'000}) {
      std::vector<std::int64_t> counts;
      for (int r = 0; r < group.size(); ++r) counts.push_back(base * r + 1);
      const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
      const auto begin =
          std::accumulate(counts.begin(), counts.begin() + group.rank(), std::int64_t{0});
      auto values = contract_values<float>(group.rank(), total);
      const auto place = std::span(values).subspan(
          static_cast<std::size_t>(begin),
          static_cast<std::size_t>(counts[static_cast<std::size_t>(group.rank())]));
      group.reduce_scatter(ConstBuffer(std::span(values)), Buffer(place), ReduceOp::sum(), counts)
          .wait();
      const std::vector<float> own(place.begin(), place.end());
      EXPECT_EQ(count_wrong(own, ReduceKind::sum, group.size(), begin), 0);
    }
  });
}

TEST_P(CommunicatorContract, AllGatherCollectsUnevenParts) {
  run([](Communicator& group) {
    for (const std::int64_t base : {0, 3, 90'001}) {
      std::vector<std::int64_t> counts;
      std::vector<std::int32_t> expected;
      for (int r = 0; r < group.size(); ++r) {
        counts.push_back(base + r);
        expected.insert(expected.end(), static_cast<std::size_t>(base + r), r);
      }
      std::vector<std::int32_t> own(static_cast<std::size_t>(base + group.rank()), group.rank());
      std::vector<std::int32_t> all(expected.size(), -1);
      group.all_gather(ConstBuffer(std::span(own)), Buffer(std::span(all)), counts).wait();
      EXPECT_EQ(all, expected);
    }
  });
}

TEST_P(CommunicatorContract, BroadcastReachesAllFromEveryRoot) {
  run([](Communicator& group) {
    for (int root = 0; root < group.size(); ++root)
      for (const std::int64_t size : contract_sizes) {
        auto values = contract_values<std::uint8_t>(group.rank(), size);
        group.broadcast(Buffer(std::span(values)), root).wait();
        EXPECT_EQ(values, contract_values<std::uint8_t>(root, size)) << root << ' ' << size;
      }
  });
}

TEST_P(CommunicatorContract, AllToAllTransposes) {
  run([](Communicator& group) {
    for (const std::size_t part : {1, 100'003}) {
      std::vector<std::int32_t> input, expected;
      for (int r = 0; r < group.size(); ++r) {
        input.insert(input.end(), part, group.rank() * 100 + r);
        expected.insert(expected.end(), part, r * 100 + group.rank());
      }
      std::vector<std::int32_t> output(input.size());
      group.all_to_all(ConstBuffer(std::span(input)), Buffer(std::span(output))).wait();
      EXPECT_EQ(output, expected);
    }
  });
}

TEST_P(CommunicatorContract, SendMeetsReceive) {
  run([](Communicator& group) {
    if (group.size() < 2 || group.rank() > 1) return;
    for (const std::int64_t size : contract_sizes) {
      auto values = contract_values<float>(group.rank(), size);
      if (group.rank() == 0)
        group.send(ConstBuffer(std::span(values)), 1).wait();
      else
        group.receive(Buffer(std::span(values)), 0).wait();
      EXPECT_EQ(values, contract_values<float>(0, size));
    }
  });
}

TEST_P(CommunicatorContract, ManyOperationsInFlightCompleteInOrder) {
  run([](Communicator& group) {
    constexpr int operations = 40;
    std::vector<std::vector<float>> buffers;
    for (int k = 0; k < operations; ++k)
      buffers.emplace_back(k % 2 ? 5 : 30'011, static_cast<float>(k));
    std::vector<Work> works;
    for (auto& buffer : buffers) works.push_back(group.all_reduce(Buffer(std::span(buffer))));
    works.back().wait();
    for (int k = 0; k < operations; ++k) {
      const auto index = static_cast<std::size_t>(k);
      EXPECT_TRUE(works[index].is_completed());
      EXPECT_EQ(works[index].exception(), nullptr);
      EXPECT_THAT(buffers[index], ::testing::Each(static_cast<float>(k * group.size())));
      ASSERT_TRUE(works[index].times());
      EXPECT_LE(works[index].times()->started, works[index].times()->finished);
      if (k > 0) {
        EXPECT_LE(works[index - 1].times()->finished, works[index].times()->started);
      }
    }
  });
}

TEST_P(CommunicatorContract, HostValuesReachAllRanks) {
  run([](Communicator& group) {
    EXPECT_EQ(all_reduce_scalar(group, 1.5), 1.5 * group.size());
    const int last = group.size() - 1;
    EXPECT_EQ(broadcast_scalar(group, group.rank() - 0.5, last), last - 0.5);
    EXPECT_EQ(broadcast_scalar(group, std::int64_t{group.rank() + 7}), 7);
    EXPECT_EQ(all_reduce_scalar(group, std::int64_t{group.rank()}, ReduceOp::max()),
              group.size() - 1);
    EXPECT_EQ(broadcast_bytes(group, "from " + std::to_string(group.rank()), group.size() - 1),
              "from " + std::to_string(group.size() - 1));
    const auto all = all_gather_bytes(
        group, std::string(static_cast<std::size_t>(group.rank()), 'x'), "lengths");
    for (int r = 0; r < group.size(); ++r)
      EXPECT_EQ(all[static_cast<std::size_t>(r)].size(), static_cast<std::size_t>(r));
  });
}

TEST_P(CommunicatorContract, SplitFormsGroupsByColorAndKey) {
  run([](Communicator& group) {
    const CommunicatorPtr half = group.split(group.rank() % 2, -group.rank());
    ASSERT_TRUE(half);
    EXPECT_EQ(half->size(), (group.size() + (group.rank() % 2 ? 0 : 1)) / 2);
    double sum = 0;
    for (int r = group.rank() % 2; r < group.size(); r += 2) sum += r;
    EXPECT_EQ(all_reduce_scalar(*half, static_cast<double>(group.rank())), sum);
    // Negative keys turn the order round: the highest rank comes first.
    EXPECT_EQ(half->rank(), (group.size() - 1 - group.rank()) / 2);
    EXPECT_FALSE(group.split(-1, 0));
    const CommunicatorPtr only_first = group.split(group.rank() == 0 ? 0 : -1, 0);
    EXPECT_EQ(static_cast<bool>(only_first), group.rank() == 0);
  });
}

TEST_P(CommunicatorContract, AbortOfAGroupInWhichNothingIsUnderWayConcernsNoOther) {
  run([](Communicator& group) {
    const CommunicatorPtr part = group.split(0, group.rank());
    EXPECT_EQ(all_reduce_scalar(*part, 1.0), group.size());
    group.barrier().synchronize();  // it has ended on all ranks
    if (group.rank() == 0) {
      part->abort("rank 0 needs it no more");
      EXPECT_THROW(part->barrier().wait(), PeerFailure);
    }
    EXPECT_EQ(all_reduce_scalar(group, 1.0), group.size());
  });
}

// Such as a program that stops early: what is done on one member is not yet on another.
TEST_P(CommunicatorContract, MembersThatThrowAlikeEndWhatAllBeganAsItWas) {
  struct Stop : std::exception {};
  run([](Communicator& group) {
    constexpr int rounds = 20;
    int stops = 0;
    for (int round = 0; round < rounds; ++round) {
      try {
        const CommunicatorPtr part = group.split(0, group.rank());
        auto values = contract_values<float>(group.rank(), 100'000);
        part->all_reduce(Buffer(std::span(values))).synchronize();
        part->broadcast(Buffer(std::span(values)), group.size() - 1).synchronize();
        throw Stop();
      } catch (const Stop&) {
        ++stops;
      }
    }
    EXPECT_EQ(stops, rounds);
  });
}

TEST_P(CommunicatorContract, RefusesImpossibleArguments) {
  run([](Communicator& group) {
    std::vector<float> values(8);
    const Buffer buffer{std::span(values)};
    EXPECT_THROW(group.all_reduce({nullptr, 4, DType::f32}), InvalidArgument);
    EXPECT_THROW(group.all_reduce({values.data(), -1, DType::f32}), InvalidArgument);
    EXPECT_THROW(group.all_reduce({values.data(), 1, DType::boolean}), Unsupported);
    EXPECT_THROW(group.all_reduce({values.data(), 1, DType::i32}, ReduceOp::scaled_sum(2)),
                 Unsupported);
    EXPECT_THROW(group.broadcast(buffer, group.size()), InvalidArgument);
    EXPECT_THROW(group.broadcast(buffer, -1), InvalidArgument);
    const auto says_what_to_do = ::testing::ThrowsMessage<InvalidArgument>(
        ::testing::HasSubstr("is this rank itself; copy the elements"));
    EXPECT_THAT([&] { group.send(buffer, group.rank()); }, says_what_to_do);
    EXPECT_THAT([&] { group.receive(buffer, group.rank()); }, says_what_to_do);
    EXPECT_THROW(group.all_gather(buffer, {values.data(), 3, DType::f32}), InvalidArgument);
    EXPECT_THROW(group.all_gather(buffer, {values.data(), 8 * group.size(), DType::i32}),
                 InvalidArgument);
  });
}

// NCCL computes them as if they were apart, and says nothing.
TEST_P(CommunicatorContract, RefusesBuffersThatOverlapElsewhereThanInPlace) {
  run([](Communicator& group) {
    std::vector<float> values(static_cast<std::size_t>(2 * group.size() + 1));
    const Buffer whole{values.data(), 2 * group.size(), DType::f32};
    const Buffer part{values.data() + 2 * group.rank() + 1, 2, DType::f32};
    EXPECT_THROW(group.reduce_scatter(whole, part), InvalidArgument);
    EXPECT_THROW(group.all_gather(part, whole), InvalidArgument);
    EXPECT_THROW(group.all_to_all(whole, whole), InvalidArgument);
    const Buffer apart{values.data() + 2 * group.size(), 1, DType::f32};
    group.reduce_scatter({values.data(), group.size(), DType::f32}, apart).wait();
  });
}

}  // namespace
}  // namespace lockstep::comm
