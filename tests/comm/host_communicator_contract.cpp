// What communicators over a transport of the host do beyond the contract of all: they compare
// signatures, name who is absent, carry an abort to the other ranks, and add 16-bit floats in
// float.

#include <string>
#include <thread>
#include <vector>

#include "comm/contracts.hpp"
#include "comm/expectations.hpp"

namespace lockstep::comm {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(HostCommunicatorContract);

TEST_P(HostCommunicatorContract, SumsOfSixteenBitFloatsAccumulateInFloat) {
  run([](Communicator& group) {
    // In bfloat16 arithmetic 256 + 1 is 256 again, however often 1 is added.
    for (const std::size_t size : {3, 30'000}) {
      std::vector<BFloat16> values(size, BFloat16(group.rank() == 0 ? 256.0f : 1.0f));
      group.all_reduce(Buffer(std::span(values))).wait();
      const BFloat16 expected(256.0f + static_cast<float>(group.size() - 1));
      EXPECT_THAT(values, ::testing::Each(expected));
    }
  });
}

// A value whose sums over ranks depend on their order.
float rough_value(int rank, std::size_t index) {
  return 1.0f / static_cast<float>(3 * rank + static_cast<int>(index % 97) + 1);
}

// (0 + 1) + (2 + 3) for four ranks, (0 + 1) + 2 for three: the definition of `host::fold`.
float tree_sum(int first, int ranks, std::size_t index, double factor_step) {
  if (ranks == 1) return rough_value(first, index) * static_cast<float>(1.0 + factor_step * first);
  const auto half = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks - 1)));
  return tree_sum(first, half, index, factor_step) +
         tree_sum(first + half, ranks - half, index, factor_step);
}

TEST_P(HostCommunicatorContract, SumsAddRanksByAFixedTree) {
  run([](Communicator& group) {
    constexpr double step = 0.3;
    for (const std::size_t size : {97, 100'001})
      for (const bool scaled : {false, true}) {
        std::vector<float> values(size);
        for (std::size_t i = 0; i < size; ++i) values[i] = rough_value(group.rank(), i);
        const ReduceOp reduction =
            scaled ? ReduceOp::scaled_sum(1.0 + step * group.rank()) : ReduceOp::sum();
        group.all_reduce(Buffer(std::span(values)), reduction).wait();
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < size; ++i)
          wrong += values[i] != tree_sum(0, group.size(), i, scaled ? step : 0.0) ? 1 : 0;
        EXPECT_EQ(wrong, 0U) << size << (scaled ? " scaled" : "");
      }
  });
}

TEST_P(HostCommunicatorContract, ExtremesKeepNaN) {
  run([](Communicator& group) {
    for (const ReduceOp& reduction : {ReduceOp::min(), ReduceOp::max()})
      expect_nan_is_kept(group, reduction);
  });
}

TEST_P(HostCommunicatorContract, ReportsDifferentCountsToAllRanks) {
  run([](Communicator& group) {
    std::vector<float> values(group.rank() == 1 ? 11 : 10);
    expect_mismatch(
        group,
        [&] {
          group.all_reduce(Buffer(std::span(values)), ReduceOp::sum(), {.label = "bucket 3"})
              .wait();
        },
        {"disagree", "all_reduce #0 of 10 f32 (sum) 'bucket 3'", "rank 1", "of 11 f32"});
  });
}

TEST_P(HostCommunicatorContract, ReportsDifferentCountsOfLargeBuffers) {
  run([](Communicator& group) {
    std::vector<float> values(100'000 + (group.rank() == 1 ? 1 : 0));
    expect_mismatch(group, [&] { group.all_reduce(Buffer(std::span(values))).wait(); },
                    {"of 100000 f32", "rank 1", "of 100001 f32"});
  });
}

TEST_P(HostCommunicatorContract, ReportsDifferentDtypes) {
  run([](Communicator& group) {
    std::vector<double> values(100'000);
    const DType dtype = group.rank() == 0 ? DType::f32 : DType::i32;
    expect_mismatch(group,
                    [&] {
                      group.all_reduce({values.data(), 50'000, dtype}).wait();
                    },
                    {"50000 f32", "50000 i32"});
  });
}

TEST_P(HostCommunicatorContract, ReportsDifferentReductions) {
  run([](Communicator& group) {
    std::vector<float> values(100);
    const ReduceOp reduction = group.rank() == 0 ? ReduceOp::sum() : ReduceOp::max();
    expect_mismatch(group, [&] { group.all_reduce(Buffer(std::span(values)), reduction).wait(); },
                    {"(sum)", "(max)"});
  });
}

TEST_P(HostCommunicatorContract, ReportsDifferentOrder) {
  run([](Communicator& group) {
    std::vector<float> a(100), b(100);
    expect_mismatch(
        group,
        [&] {
          const bool first = group.rank() == 0;
          group.all_reduce(Buffer(std::span(a)), ReduceOp::sum(), {.label = first ? "a" : "b"});
          group.all_reduce(Buffer(std::span(b)), ReduceOp::sum(), {.label = first ? "b" : "a"})
              .wait();
        },
        {"'a'", "'b'"});
  });
}

// A rank that gives no label agrees with each of the others, which do not with each other.
TEST_P(HostCommunicatorContract, ReportsLabelsThatDifferBesideARankWithoutOne) {
  run([](Communicator& group) {
    if (group.size() < 3) return;
    float value = 0;
    const std::string label = group.rank() == 0 ? "" : group.rank() == 1 ? "a" : "b";
    expect_mismatch(
        group,
        [&] {
          group.all_reduce({&value, 1, DType::f32}, ReduceOp::sum(), {.label = label}).wait();
        },
        {"'a'", "'b'"});
  });
}

// What never ended well took no time that could be told.
TEST_P(HostCommunicatorContract, OperationsThatFailedHaveNoTimes) {
  run([](Communicator& group) {
    group.abort("the test ends the group");
    const Work work = group.barrier();
    EXPECT_THROW(work.wait(), PeerFailure);
    EXPECT_FALSE(work.times());
    EXPECT_FALSE(work.duration());
  });
}

TEST_P(HostCommunicatorContract, ReportsDifferentOperations) {
  run([](Communicator& group) {
    std::vector<float> values(100'000);
    const Buffer buffer{std::span(values)};
    expect_mismatch(
        group,
        [&] { (group.rank() == 0 ? group.all_reduce(buffer) : group.broadcast(buffer)).wait(); },
        {"all_reduce", "broadcast"});
  });
}

// Only the receiver sees both sides; the sender, and who waits for either, must hear of it.
TEST_P(HostCommunicatorContract, ReceiveThatDoesNotMatchEndsItsSenderToo) {
  run([](Communicator& group) {
    if (group.size() == 1) return;
    std::vector<float> values(group.rank() == 0 ? 100'000 : 50'000);
    const Buffer buffer{std::span(values)};
    if (group.rank() == 1) {
      EXPECT_THROW(group.receive(buffer, 0).wait(), Mismatch);
      return;
    }
    try {
      if (group.rank() == 0) group.send(buffer, 1).wait();
      group.barrier().wait();
      ADD_FAILURE() << "rank " << group.rank() << " noticed nothing";
    } catch (const PeerFailure& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("called receive from rank 0"));
    }
  });
}

TEST_P(HostCommunicatorContract, AbsentRankTimesOutWithItsNumber) {
  run(
      [](Communicator& group) {
        if (group.size() == 1) return;
        if (group.rank() == 1) {
          // Stays alive, and away from the group, until the others gave up.
          std::this_thread::sleep_for(std::chrono::milliseconds(700));
          return;
        }
        float value = 0;
        try {
          group.all_reduce({&value, 1, DType::f32}, ReduceOp::sum(), {.label = "loss"}).wait();
          ADD_FAILURE() << "rank " << group.rank() << " got a result from nowhere";
        } catch (const Timeout& error) {
          const std::string text = error.what();
          EXPECT_THAT(text, ::testing::HasSubstr("'loss'"));
          EXPECT_THAT(text, ::testing::HasSubstr("#0"));
          EXPECT_THAT(text, ::testing::HasSubstr("1"));
        } catch (const PeerFailure& error) {  // another rank's clock was faster
          EXPECT_THAT(error.what(), ::testing::HasSubstr("timed out"));
        }
      },
      {.timeout = std::chrono::milliseconds(300)});
}

TEST_P(HostCommunicatorContract, AbortReachesWaitingRanksWithItsReason) {
  run([](Communicator& group) {
    if (group.size() == 1) return;
    if (group.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      group.abort("rank 0 ran out of memory");
      return;
    }
    std::vector<float> values(100'000);
    try {
      group.all_reduce(Buffer(std::span(values))).wait();
      ADD_FAILURE() << "no error";
    } catch (const PeerFailure& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 0 ran out of memory"));
    }
  });
}

// The first rank is gone, its memory with it, when the others answer the message that it began.
TEST_P(HostCommunicatorContract, AbortReachesRanksThatComeLater) {
  run([](Communicator& group) {
    if (group.size() == 1) return;
    std::vector<float> values(2000);  // more than MPI sends before it is asked for
    const Buffer buffer{std::span(values)};
    try {
      if (group.rank() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(800));
      const Work work = group.all_reduce(buffer);
      if (group.rank() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        group.abort("rank 0 ran out of memory");
      }
      work.wait();  // what was on its way already may arrive
      group.barrier().wait();
      ADD_FAILURE() << "no error";
    } catch (const PeerFailure& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 0 ran out of memory"));
    }
  });
}

}  // namespace
}  // namespace lockstep::comm
