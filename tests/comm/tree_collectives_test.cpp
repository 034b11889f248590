#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "comm/contracts.hpp"
#include "comm/host/collectives.hpp"
#include "comm/host/fold.hpp"
#include "comm/thread/thread_transport.hpp"
#include "lockstep/comm/thread_world.hpp"

// Groups in which not every rank talks to all others.

namespace lockstep::comm {
namespace {

using lockstep::testing::name_of_ranks, lockstep::testing::threads;

const auto tree_groups = ::testing::Values(threads(9));
INSTANTIATE_TEST_SUITE_P(Tree, CommunicatorContract, tree_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Tree, HostCommunicatorContract, tree_groups, name_of_ranks);

/// Counts what a rank sends.
class CountingTransport final : public host::Transport {
 public:
  CountingTransport(std::shared_ptr<ThreadHub> hub, int rank) : transport_(std::move(hub), rank) {}
  int rank() const override { return transport_.rank(); }
  int size() const override { return transport_.size(); }
  std::string_view backend() const override { return "counting"; }
  void transfer(std::span<const host::Outgoing> out, std::span<host::Incoming> in,
                const host::WaitOptions& options) override {
    count(out);
    transport_.transfer(out, in, options);
  }
  void exchange(std::span<const host::Outgoing> out, std::span<host::Incoming> in,
                const host::WaitOptions& options, host::Arrived arrived) override {
    count(out);
    transport_.exchange(out, in, options, arrived);
  }
  std::unique_ptr<host::Transport> split(int, const std::vector<int>&, host::GatherBytes) override {
    return nullptr;
  }
  void abort(const std::string& reason) noexcept override { transport_.abort(reason); }

  std::size_t messages = 0, bytes = 0;

 private:
  void count(std::span<const host::Outgoing> out) {
    for (const host::Outgoing& message : out) {
      ++messages;
      bytes += message.data.size();
    }
  }
  ThreadTransport transport_;
};

struct Traffic {
  std::size_t messages = 0, bytes = 0, most_messages_of_a_rank = 0;
};

/// Runs one operation on each of many ranks; `body(collectives, rank)`.
template <class Body>
Traffic traffic_of(int ranks, int direct_ranks, Body body) {
  const auto hub = std::make_shared<ThreadHub>(ranks);
  Traffic traffic;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      CountingTransport transport(hub, rank);
      host::Collectives collectives(transport, "world", true, direct_ranks);
      body(collectives, rank);
      const std::lock_guard lock(mutex);
      traffic.messages += transport.messages;
      traffic.bytes += transport.bytes;
      traffic.most_messages_of_a_rank =
          std::max(traffic.most_messages_of_a_rank, transport.messages);
    });
  for (std::thread& thread : threads) thread.join();
  return traffic;
}

Operation all_reduce_operation(std::vector<float>& values) {
  Operation operation;
  operation.kind = OperationKind::all_reduce;
  operation.dtype = DType::f32;
  operation.count = std::ssize(values);
  operation.input = operation.output = reinterpret_cast<std::byte*>(values.data());
  return operation;
}

TEST(TreeTraffic, GrowsWithTheNumberOfRanksAndNotItsSquare) {
  constexpr std::size_t bytes = 8192, least_overhead = 16, most_overhead = 1024;
  for (const int ranks : {64, 512}) {
    const auto n = static_cast<std::size_t>(ranks);
    const Traffic traffic = traffic_of(ranks, 8, [](host::Collectives& collectives, int) {
      std::vector<float> values(bytes / sizeof(float), 1.0f);
      const Operation operation = all_reduce_operation(values);
      collectives.run({&operation, 1}, host::Deadline());
    });
    EXPECT_EQ(traffic.messages, 2 * (n - 1));
    EXPECT_LE(traffic.most_messages_of_a_rank, 2 * static_cast<std::size_t>(std::bit_width(n)));
    EXPECT_GE(traffic.bytes, 2 * (n - 1) * (bytes + least_overhead));
    EXPECT_LE(traffic.bytes, 2 * (n - 1) * (bytes + most_overhead));
  }
}

TEST(TreeTraffic, OfSmallGroupsGoesToAllOthersAtOnce) {
  const Traffic traffic = traffic_of(4, 8, [](host::Collectives& collectives, int) {
    std::vector<float> values(4);
    const Operation operation = all_reduce_operation(values);
    collectives.run({&operation, 1}, host::Deadline());
  });
  EXPECT_EQ(traffic.messages, 12U);
}

/// Random values of each rank, all-reduced over a tree and by `fold`; as bytes.
template <class T>
void expect_bits_of_fold(int ranks, std::int64_t count, ReduceKind kind) {
  std::minstd_rand generator(7);
  std::uniform_real_distribution<float> distribution(-3, 3);
  std::vector<std::vector<T>> values(static_cast<std::size_t>(ranks));
  std::vector<const std::byte*> sources;
  std::vector<double> factors;
  for (std::vector<T>& own : values) {
    for (std::int64_t i = 0; i < count; ++i) own.push_back(static_cast<T>(distribution(generator)));
    sources.push_back(reinterpret_cast<const std::byte*>(own.data()));
    factors.push_back(distribution(generator));
  }
  std::vector<T> expected(static_cast<std::size_t>(count));
  host::fold(dtype_of<T>, kind, {sources, factors}, reinterpret_cast<std::byte*>(expected.data()),
             count);
  std::atomic<int> wrong = 0;
  traffic_of(ranks, 0, [&](host::Collectives& collectives, int rank) {
    std::vector<T> result(static_cast<std::size_t>(count));
    Operation operation;
    operation.kind = OperationKind::all_reduce;
    operation.dtype = dtype_of<T>;
    operation.count = count;
    operation.reduction = {kind, factors[static_cast<std::size_t>(rank)]};
    operation.input = sources[static_cast<std::size_t>(rank)];
    operation.output = reinterpret_cast<std::byte*>(result.data());
    collectives.run({&operation, 1}, host::Deadline());
    if (std::memcmp(result.data(), expected.data(), result.size() * sizeof(T)) != 0) ++wrong;
  });
  EXPECT_EQ(wrong, 0) << ranks << " ranks, " << count << ' ' << dtype_of<T> << ", "
                      << static_cast<int>(kind);
}

TEST(TreeSums, HaveTheBitsOfFold) {
  for (int ranks = 2; ranks <= 9; ++ranks)
    for (const std::int64_t count : {1, 97, 2048}) {
      for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::average, ReduceKind::min,
                                    ReduceKind::max, ReduceKind::product, ReduceKind::scaled_sum}) {
        expect_bits_of_fold<float>(ranks, count, kind);
        expect_bits_of_fold<double>(ranks, count, kind);
        expect_bits_of_fold<BFloat16>(ranks, count, kind);
        expect_bits_of_fold<Half>(ranks, count, kind);
      }
      for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::average, ReduceKind::product})
        expect_bits_of_fold<std::int32_t>(ranks, count, kind);
    }
}

class TreeMismatch : public ::testing::TestWithParam<int> {};

/// Each rank calls what `call` makes of its number: all see all, and name the odd one.
void expect_named_by_all(int ranks, const std::function<Operation(int, std::vector<float>&)>& call,
                         const std::string& odd) {
  std::atomic<int> named = 0;
  traffic_of(ranks, 0, [&](host::Collectives& collectives, int rank) {
    std::vector<float> values(100'000);
    const Operation operation = call(rank, values);
    try {
      collectives.run({&operation, 1}, host::Deadline());
    } catch (const Mismatch& error) {
      EXPECT_TRUE(collectives.has_seen_all());
      if (std::string(error.what()).find(odd) != std::string::npos)
        ++named;
      else
        ADD_FAILURE() << error.what();
    }
  });
  EXPECT_EQ(named, ranks) << odd;
}

TEST_P(TreeMismatch, OfEachKindIsNamedByAllRanks) {
  const int ranks = GetParam();
  for (const int culprit : {0, 1, ranks / 2, ranks - 1}) {
    const std::string odd = "rank " + std::to_string(culprit) + " called ";
    const auto base = [](std::vector<float>& values) {
      Operation operation = all_reduce_operation(values);
      operation.count = 100;
      operation.label = "bucket 3";
      return operation;
    };
    const auto expect = [&](const std::string& words,
                            const std::function<void(Operation&)>& alter) {
      expect_named_by_all(
          ranks,
          [&](int rank, std::vector<float>& values) {
            Operation operation = base(values);
            if (rank == culprit) alter(operation);
            return operation;
          },
          odd + words);
    };
    expect("all_reduce #0 of 101 f32", [](Operation& one) { one.count = 101; });
    expect("all_reduce #0 of 90000 f32", [](Operation& one) { one.count = 90'000; });
    expect("all_reduce #0 of 100 i32", [](Operation& one) { one.dtype = DType::i32; });
    expect("all_reduce #0 of 100 f32 (max)",
           [](Operation& one) { one.reduction = ReduceOp::max(); });
    expect("barrier #0", [](Operation& one) { one.kind = OperationKind::barrier; });
    expect("broadcast #0", [](Operation& one) { one.kind = OperationKind::broadcast; });
    expect("all_reduce #4", [](Operation& one) { one.sequence = 4; });
    expect("all_reduce #0 of 100 f32 (sum) 'bucket 4'",
           [](Operation& one) { one.label = "bucket 4"; });
  }
}

// Most ranks give no label, which fits any.
TEST_P(TreeMismatch, OfTwoLabelsAmongRanksWithoutAnyIsNamed) {
  const int ranks = GetParam();
  expect_named_by_all(
      ranks,
      [&](int rank, std::vector<float>& values) {
        Operation operation = all_reduce_operation(values);
        operation.count = 100;
        if (rank == 1) operation.label = "a";
        if (rank == ranks - 1) operation.label = "b";
        return operation;
      },
      "'b'");
}
INSTANTIATE_TEST_SUITE_P(Sizes, TreeMismatch, ::testing::Values(3, 5, 9, 17));

TEST(TreeAgreement, TakesALabelForOneThatOthersLeaveOut) {
  traffic_of(5, 0, [](host::Collectives& collectives, int rank) {
    std::vector<float> values(100);
    Operation operation = all_reduce_operation(values);
    if (rank % 2 == 1) operation.label = "a";
    EXPECT_NO_THROW(collectives.run({&operation, 1}, host::Deadline()));
  });
}

// Its neighbours wait for it; the others for those.
TEST(TreeTimeout, NamesTheRankThatIsMissingAndNoneThatWaits) {
  for (const int absent : {0, 6, 16}) {
    std::mutex mutex;
    std::vector<std::string> messages;
    EXPECT_THROW(
        run_ranks(17,
                  [&](Communicator& group) {
                    float value = 1;
                    group.all_reduce({&value, 1, DType::f32}).wait();
                    try {
                      if (group.rank() == absent) {
                        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
                        return;
                      }
                      // Not all begin at once.
                      std::this_thread::sleep_for(std::chrono::milliseconds(10 * group.rank()));
                      group.all_reduce({&value, 1, DType::f32}).wait();
                    } catch (const Error& error) {
                      const std::lock_guard lock(mutex);
                      messages.emplace_back(error.what());
                      throw;
                    }
                  },
                  {.timeout = std::chrono::milliseconds(400)}),
        Error);
    EXPECT_EQ(messages.size(), 16U);
    for (const std::string& message : messages)
      EXPECT_THAT(message, ::testing::HasSubstr("waiting for rank " + std::to_string(absent)));
    for (const std::string& message : messages)
      EXPECT_THAT(message, ::testing::Not(::testing::HasSubstr("may itself")));
  }
}

TEST(TreeAbort, InTheMiddleReachesAllRanks) {
  std::atomic<int> reached = 0;
  EXPECT_THROW(run_ranks(17,
                         [&](Communicator& group) {
                           try {
                             for (int step = 0;; ++step) {
                               if (group.rank() == 11 && step == 30)
                                 group.abort("rank 11 ran out of memory");
                               float value = 1;
                               group.all_reduce({&value, 1, DType::f32}).wait();
                             }
                           } catch (const PeerFailure& error) {
                             EXPECT_THAT(error.what(),
                                         ::testing::HasSubstr("rank 11 ran out of memory"));
                             ++reached;
                             throw;
                           }
                         }),
               PeerFailure);
  EXPECT_EQ(reached, 17);
}

TEST(TreeMessages, BetweenCollectivesAreReceived) {
  run_ranks(17, [&](Communicator& group) {
    float value = static_cast<float>(group.rank());
    const Buffer buffer{&value, 1, DType::f32};
    for (int step = 0; step < 3; ++step) {
      if (group.rank() == 5) group.send(buffer, 6).wait();
      if (group.rank() == 6) group.receive(buffer, 5).wait();
      if (group.rank() == 3) group.send(buffer, 2).wait();
      if (group.rank() == 2) group.receive(buffer, 3).wait();
      group.barrier().wait();
    }
    EXPECT_EQ(value, group.rank() == 6 ? 5 : group.rank() == 2 ? 3 : group.rank());
  });
}

// Of a message that a rank has sent to another, which does not know of it.
TEST(TreeMessages, ThatNobodyReceivedAreNoticedByAllRanks) {
  for (const std::uint64_t received : {0, 77}) {
    std::atomic<int> agreed = 0;
    const auto hub = std::make_shared<ThreadHub>(9);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 9; ++rank)
      threads.emplace_back([&, rank] {
        ThreadTransport transport(hub, rank);
        host::TreeExchange tree(transport, "world", true, 0);
        const std::uint64_t unreceived = rank == 5 ? 77 : rank == 6 ? 0 - received : 0;
        const host::Deadline deadline;
        if (tree.run(Operation(), unreceived, host::NoData(), {.deadline = &deadline})) ++agreed;
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(agreed, received == 77 ? 9 : 0);
  }
}

}  // namespace
}  // namespace lockstep::comm
