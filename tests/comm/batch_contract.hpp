#pragma once

#include <stdexcept>
#include <vector>

#include "comm/communicator_contract.hpp"

/// @file
/// What every communicator must do with operations that start as one.

namespace lockstep::comm {

template <class World>
class BatchContract : public CommunicatorContract<World> {};
TYPED_TEST_SUITE_P(BatchContract);

// One after the other they would wait for each other until the timeout.
TYPED_TEST_P(BatchContract, TwoRanksMayBothSendFirst) {
  this->run([](Communicator& group) {
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

TYPED_TEST_P(BatchContract, RanksExchangeInARing) {
  this->run([](Communicator& group) {
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
TYPED_TEST_P(BatchContract, OtherRankMayCallOneByOne) {
  this->run([](Communicator& group) {
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

// Rank 0 names rank 1 first, which waits for rank 2, which waits until rank 0 has its message.
TYPED_TEST_P(BatchContract, WhoeverComesFirstIsServedFirst) {
  this->run([](Communicator& group) {
    if (group.size() < 3) return;
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

TYPED_TEST_P(BatchContract, MessagesOfOnePairMatchInOrder) {
  this->run([](Communicator& group) {
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

TYPED_TEST_P(BatchContract, CollectivesJoinABatch) {
  this->run([](Communicator& group) {
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

TYPED_TEST_P(BatchContract, WorkOfACallStandsForItsBatch) {
  this->run([](Communicator& group) {
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

TYPED_TEST_P(BatchContract, NothingStartsIfTheCallsFail) {
  this->run([](Communicator& group) {
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

REGISTER_TYPED_TEST_SUITE_P(BatchContract, TwoRanksMayBothSendFirst, RanksExchangeInARing,
                            OtherRankMayCallOneByOne, WhoeverComesFirstIsServedFirst,
                            MessagesOfOnePairMatchInOrder, CollectivesJoinABatch,
                            WorkOfACallStandsForItsBatch, NothingStartsIfTheCallsFail);

}  // namespace lockstep::comm
