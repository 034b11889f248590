// What every communicator must do with operations that start as one.

#include <array>
#include <stdexcept>
#include <utility>
#include <vector>

#include "comm/contracts.hpp"
#include "comm/expectations.hpp"

namespace lockstep::comm {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BatchContract);

// One after the other they would wait for each other until the timeout.
TEST_P(BatchContract, TwoRanksMayBothSendFirst) {
  run([](Communicator& group) {
    if (group.size() < 2 || group.rank() > 1) return;
    const int other = 1 - group.rank();
    for (const std::int64_t size : contract_sizes) {
      const auto sent = contract_values<float>(group.rank(), size);
      std::vector<float> received(sent.size());
      group
          .batch([&] {
            group.send(ConstBuffer(std::span(sent)), other);
            group.receive(Buffer(std::span(received)), other);
          })
          .wait();
      EXPECT_EQ(received, contract_values<float>(other, size)) << size;
    }
  });
}

TEST_P(BatchContract, RanksExchangeInARing) {
  run([](Communicator& group) {
    if (group.size() < 2) return;
    const int next = (group.rank() + 1) % group.size();
    const int previous = (group.rank() + group.size() - 1) % group.size();
    for (const std::int64_t size : {3, 200'003}) {
      auto values = contract_values<std::int32_t>(group.rank(), size);
      std::vector<std::int32_t> received(values.size());
      for (int step = 0; step < group.size(); ++step) {
        const Work work = group.batch([&] {
          group.send(ConstBuffer(std::span(values)), next);
          group.receive(Buffer(std::span(received)), previous);
        });
        work.synchronize();
        std::swap(values, received);
      }
      EXPECT_EQ(values, contract_values<std::int32_t>(group.rank(), size));
    }
  });
}

// Its first message must go out, and be followed by its data, before anything has come in.
TEST_P(BatchContract, OtherRankMayCallOneByOne) {
  run([](Communicator& group) {
    if (group.size() < 2 || group.rank() > 1) return;
    for (const std::int64_t size : {2, 5'000'000}) {
      std::vector<std::uint8_t> sent(static_cast<std::size_t>(size), std::uint8_t{1});
      std::vector<std::uint8_t> received(sent.size());
      const auto send = [&] { return group.send(ConstBuffer(std::span(sent)), 1 - group.rank()); };
      const auto receive = [&] {
        return group.receive(Buffer(std::span(received)), 1 - group.rank());
      };
      if (group.rank() == 0) {
        group.batch([&] { receive(), send(); }).wait();
      } else {
        receive().wait();
        send().wait();
      }
      EXPECT_EQ(received, sent);
    }
  });
}

void connect_all(Communicator& group) {
  std::vector<float> sent(static_cast<std::size_t>(group.size())), received(sent.size());
  group.all_to_all(ConstBuffer(std::span(sent)), Buffer(std::span(received))).wait();
}

enum class Way { batch, send_first, receive_first };

// Two messages each way, which match in their order. Whoever calls one by one takes turns: in a
// batch over NCCL the second ones begin when the first of both directions have ended.
void exchange(Communicator& group, int other, Way way) {
  const std::int32_t own = group.rank();
  const std::array<std::int32_t, 2> sent{10 + own, 20 + own};
  std::array<std::int32_t, 2> received{};
  const auto each = [](const auto& call) { call(0), call(1); };
  const auto send = [&](std::size_t i) {
    return group.send(ConstBuffer(std::span(sent).subspan(i, 1)), other);
  };
  const auto receive = [&](std::size_t i) {
    return group.receive(Buffer(std::span(received).subspan(i, 1)), other);
  };
  switch (way) {
    case Way::batch: group.batch([&] { each(receive), each(send); }).wait(); break;
    case Way::send_first: each([&](std::size_t i) { send(i).wait(), receive(i).wait(); }); break;
    case Way::receive_first: each([&](std::size_t i) { receive(i).wait(), send(i).wait(); }); break;
  }
  EXPECT_THAT(received, ::testing::ElementsAre(10 + other, 20 + other));
}

// NCCL connects two ranks by what their first calls want. Ranks half the group apart are a case of
// their own there.
TEST_P(BatchContract, RanksMayBeginDifferently) {
  run([](Communicator& world) {
    if (world.size() < 2) return;
    const int half = world.size() / 2;
    for (const auto& [first, second] :
         {std::pair(Way::batch, Way::receive_first), std::pair(Way::batch, Way::send_first),
          std::pair(Way::send_first, Way::batch), std::pair(Way::receive_first, Way::batch),
          std::pair(Way::receive_first, Way::send_first)}) {
      const CommunicatorPtr group = world.split(0, world.rank());  // whose ranks never met
      if (group->rank() == 0) exchange(*group, half, first);
      if (group->rank() == half) exchange(*group, 0, second);
      group->barrier().wait();
    }
  });
}

// Rank 0 names the others in another order than theirs, in which each calls one by one.
TEST_P(BatchContract, FirstOneOfARankMayMeetSingleCallsOfAllOthers) {
  run([](Communicator& group) {
    if (group.size() < 2) return;
    const auto ranks = static_cast<std::size_t>(group.size());
    std::vector<std::int32_t> sent(ranks, group.rank()), received(ranks, -1);
    const auto send = [&](int to) {
      return group.send(ConstBuffer(std::span(sent).subspan(static_cast<std::size_t>(to), 1)), to);
    };
    const auto receive = [&](int from) {
      return group.receive(Buffer(std::span(received).subspan(static_cast<std::size_t>(from), 1)),
                           from);
    };
    if (group.rank() > 0) {
      receive(0).wait();
      send(0).wait();
      EXPECT_EQ(received[0], 0);
      return;
    }
    group
        .batch([&] {
          for (int rank = group.size() - 1; rank > 0; --rank) send(rank), receive(rank);
        })
        .wait();
    for (std::size_t rank = 1; rank < ranks; ++rank)
      EXPECT_EQ(received[rank], static_cast<std::int32_t>(rank));
  });
}

// Rank 0 names rank 1 first, which waits for rank 2, which waits until rank 0 has its message.
TEST_P(BatchContract, WhoeverComesFirstIsServedFirst) {
  run([](Communicator& group) {
    if (group.size() < 3) return;
    if (ranks().connects_in_order) connect_all(group);
    std::vector<float> one(50'000, 1.0f), two(50'000, 2.0f);
    if (group.rank() == 0) {
      std::ranges::fill(one, 0.0f);
      std::ranges::fill(two, 0.0f);
      group
          .batch([&] {
            group.receive(Buffer(std::span(one)), 1);
            group.receive(Buffer(std::span(two)), 2);
          })
          .wait();
      EXPECT_THAT(one, ::testing::Each(1.0f));
      EXPECT_THAT(two, ::testing::Each(2.0f));
    } else if (group.rank() == 1) {
      std::vector<float> token(50'000);
      group.receive(Buffer(std::span(token)), 2).wait();
      group.send(ConstBuffer(std::span(one)), 0).wait();
    } else if (group.rank() == 2) {
      group.send(ConstBuffer(std::span(two)), 0).wait();
      group.send(ConstBuffer(std::span(two)), 1).wait();
    }
  });
}

TEST_P(BatchContract, MessagesOfOnePairMatchInOrder) {
  run([](Communicator& group) {
    if (group.size() < 2 || group.rank() > 1) return;
    std::vector<std::vector<float>> values;
    for (const std::int64_t size : {1, 70'001, 0, 2, 90'001})
      values.push_back(contract_values<float>(group.rank(), size));
    group
        .batch([&] {
          for (auto& one : values)
            if (group.rank() == 0)
              group.send(ConstBuffer(std::span(one)), 1);
            else
              group.receive(Buffer(std::span(one)), 0);
        })
        .wait();
    for (const auto& one : values)
      EXPECT_EQ(one, contract_values<float>(0, static_cast<std::int64_t>(one.size())));
  });
}

TEST_P(BatchContract, CollectivesJoinABatch) {
  run([](Communicator& group) {
    for (const std::size_t size : {4, 50'003}) {
      std::vector<float> sum(size, 1.0f), maximum(size, static_cast<float>(group.rank()));
      std::int32_t sent = group.rank(), received = -1;
      const Work work = group.batch([&] {
        group.all_reduce(Buffer(std::span(sum)));
        if (group.size() > 1 && group.rank() == 0) group.send({&sent, 1, DType::i32}, 1);
        group.all_reduce(Buffer(std::span(maximum)), ReduceOp::max());
        if (group.rank() == 1) group.receive({&received, 1, DType::i32}, 0);
      });
      work.wait();
      EXPECT_THAT(sum, ::testing::Each(static_cast<float>(group.size())));
      EXPECT_THAT(maximum, ::testing::Each(static_cast<float>(group.size() - 1)));
      if (group.rank() == 1) {
        EXPECT_EQ(received, 0);
      }
    }
  });
}

// Of several dtypes and ops, and with messages between.
TEST_P(BatchContract, EveryCollectiveJoinsABatch) {
  run([](Communicator& group) {
    const auto n = static_cast<std::size_t>(group.size());
    const auto own = static_cast<double>(group.rank());
    for (const std::size_t part : {2, 20'001}) {
      std::vector<double> sum(part, 1.0), parts(n * part, own), exchanged(n * part, -1.0);
      std::vector<std::int64_t> maximum(part, group.rank()), gathered(n * part, -1);
      std::vector<float> scattered(part), all(n * part, 1.0f), from_last(part, -1.0f);
      std::vector<std::uint8_t> sent(part, 7), received(part, 0);
      if (group.rank() + 1 == group.size()) std::ranges::fill(from_last, 5.0f);
      group
          .batch([&] {
            group.all_reduce(Buffer(std::span(sum)), ReduceOp::average());
            group.all_gather({maximum.data(), std::ssize(maximum), DType::i64},
                             Buffer(std::span(gathered)));
            if (group.size() > 1 && group.rank() == 0) group.send(ConstBuffer(std::span(sent)), 1);
            group.reduce_scatter(ConstBuffer(std::span(all)), Buffer(std::span(scattered)));
            group.broadcast(Buffer(std::span(from_last)), group.size() - 1);
            if (group.rank() == 1) group.receive(Buffer(std::span(received)), 0);
            group.all_to_all(ConstBuffer(std::span(parts)), Buffer(std::span(exchanged)));
            group.barrier();
          })
          .wait();
      EXPECT_THAT(sum, ::testing::Each(1.0));
      EXPECT_THAT(scattered, ::testing::Each(static_cast<float>(group.size())));
      EXPECT_THAT(from_last, ::testing::Each(5.0f));
      for (std::size_t i = 0; i < n * part; ++i) {
        ASSERT_EQ(gathered[i], static_cast<std::int64_t>(i / part));
        ASSERT_EQ(exchanged[i], static_cast<double>(i / part));
      }
      if (group.rank() == 1) {
        EXPECT_EQ(received, sent);
      }
    }
  });
}

TEST_P(BatchContract, ManyMayBeUnderWay) {
  run([](Communicator& group) {
    constexpr std::size_t batches = 50;
    const int other = 1 - group.rank();
    std::vector<std::vector<float>> sums(batches), received(batches);
    const auto sent = contract_values<float>(group.rank(), 300);
    std::vector<Work> work;
    for (std::size_t i = 0; i < batches; ++i) {
      sums[i].assign(i % 2 ? 10 : 5'000, static_cast<float>(i));
      received[i].assign(sent.size(), -1.0f);
      work.push_back(group.batch([&] {
        group.all_reduce(Buffer(std::span(sums[i])));
        if (group.size() < 2 || group.rank() > 1) return;
        group.send(ConstBuffer(std::span(sent)), other);
        group.receive(Buffer(std::span(received[i])), other);
      }));
    }
    work.back().synchronize();
    for (std::size_t i = 0; i < batches; ++i) {
      EXPECT_TRUE(work[i].is_completed()) << i;
      EXPECT_THAT(sums[i], ::testing::Each(static_cast<float>(i * std::size_t(group.size()))));
      if (group.size() > 1 && group.rank() < 2) {
        EXPECT_EQ(received[i], contract_values<float>(other, 300)) << i;
      }
    }
  });
}

TEST_P(BatchContract, WorkOfACallStandsForItsBatch) {
  run([](Communicator& group) {
    float value = 1;
    Work one, inner;
    const Work all = group.batch([&] {
      one = group.all_reduce({&value, 1, DType::f32});
      EXPECT_FALSE(one.is_completed());
      EXPECT_THROW(one.wait(), InvalidArgument);
      EXPECT_THROW(group.split(0, 0), InvalidArgument);
      inner = group.batch([&] { group.barrier(); });
    });
    one.wait();
    EXPECT_TRUE(all.is_completed());
    EXPECT_TRUE(inner.is_completed());
    EXPECT_EQ(value, static_cast<float>(group.size()));
    EXPECT_TRUE(group.batch([] {}).is_completed());
  });
}

TEST_P(BatchContract, NothingStartsIfTheCallsFail) {
  run([](Communicator& group) {
    float value = 1;
    Work work;
    const auto failing = [&] {
      group.batch([&] {
        work = group.all_reduce({&value, 1, DType::f32});
        throw std::runtime_error("no");
      });
    };
    if (group.rank() == 0) {
      EXPECT_THROW(failing(), std::runtime_error);
      EXPECT_THROW(work.wait(), InvalidArgument);
    }
    group.all_reduce({&value, 1, DType::f32}).wait();
    EXPECT_EQ(value, static_cast<float>(group.size()));
  });
}

TEST_P(BatchContract, CallThatIsRefusedStartsNothing) {
  run([](Communicator& group) {
    float value = 1;
    EXPECT_THROW(group.batch([&] {
      group.all_reduce({&value, 1, DType::f32});
      group.send({&value, 1, DType::f32}, group.size());
    }),
                 InvalidArgument);
    group.all_reduce({&value, 1, DType::f32}).wait();
    EXPECT_EQ(value, static_cast<float>(group.size()));
  });
}

// Whoever catches what an inner batch throws gets the rest of the outer one.
TEST_P(BatchContract, InnerBatchThatFailsStartsNothingOfItsOwn) {
  run([](Communicator& group) {
    float first = 1, dropped = 1, last = 1;
    group
        .batch([&] {
          group.all_reduce({&first, 1, DType::f32});
          EXPECT_THROW(group.batch([&] {
            group.all_reduce({&dropped, 1, DType::f32});
            throw std::runtime_error("no");
          }),
                       std::runtime_error);
          group.all_reduce({&last, 1, DType::f32});
        })
        .wait();
    EXPECT_EQ(first, static_cast<float>(group.size()));
    EXPECT_EQ(dropped, 1);
    EXPECT_EQ(last, static_cast<float>(group.size()));
  });
}

}  // namespace
}  // namespace lockstep::comm
