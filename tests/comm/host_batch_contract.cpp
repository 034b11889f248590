// What communicators over a transport of the host do when a batch fails.

#include <chrono>
#include <thread>
#include <vector>

#include "comm/contracts.hpp"
#include "comm/expectations.hpp"

namespace lockstep::comm {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(HostBatchContract);

// Only the receiver sees both sides; the others hear of it.
TEST_P(HostBatchContract, MessageThatDoesNotMatchFailsAllOfTheBatch) {
  run([](Communicator& group) {
    if (group.size() == 1) return;
    const int other = 1 - group.rank();
    std::vector<float> sent(group.rank() == 0 ? 100'000 : 50'000), received(50'000);
    try {
      if (group.rank() < 2)
        group
            .batch([&] {
              group.send(ConstBuffer(std::span(sent)), other);
              group.receive(Buffer(std::span(received)), other);
            })
            .wait();
      group.barrier().wait();
      ADD_FAILURE() << "rank " << group.rank() << " noticed nothing";
    } catch (const Mismatch& error) {
      EXPECT_EQ(group.rank(), 1);
      EXPECT_THAT(error.what(),
                  ::testing::AllOf(::testing::HasSubstr("receive from rank 0 #0 of 50000 f32"),
                                   ::testing::HasSubstr("send to rank 1 #0 of 100000 f32"),
                                   ::testing::HasSubstr("and 1 more of its batch")));
    } catch (const PeerFailure& error) {
      EXPECT_NE(group.rank(), 1);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("of 50000 f32"));
    }
  });
}

TEST_P(HostBatchContract, BatchesOfDifferentCollectivesAreReported) {
  run([](Communicator& group) {
    if (group.size() == 1) return;
    std::vector<float> values(group.rank() == 0 ? 10 : 11);
    try {
      group
          .batch([&] {
            group.barrier();
            group.all_reduce(Buffer(std::span(values)));
          })
          .wait();
      ADD_FAILURE() << "rank " << group.rank() << " noticed nothing";
    } catch (const Mismatch& error) {
      EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("of 10 f32"),
                                                 ::testing::HasSubstr("of 11 f32")));
    }
  });
}

TEST_P(HostBatchContract, MemberThatFailsEndsTheBatchOfTheOthers) {
  run([](Communicator& group) {
    if (group.size() < 2 || group.rank() > 1) return;
    if (group.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      group.abort("rank 1 ran out of memory");
      return;
    }
    std::vector<float> sent(100'000), received(100'000);
    try {
      group
          .batch([&] {
            group.send(ConstBuffer(std::span(sent)), 1);
            group.receive(Buffer(std::span(received)), 1);
          })
          .wait();
      ADD_FAILURE() << "no error";
    } catch (const PeerFailure& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 1 ran out of memory"));
    }
  });
}

TEST_P(HostBatchContract, MemberThatDoesNotJoinIsNamed) {
  run(
      [](Communicator& group) {
        if (group.size() < 2 || group.rank() > 1) return;
        if (group.rank() == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1500));
          return;
        }
        float sent = 1, received = 0;
        try {
          group
              .batch([&] {
                group.send({&sent, 1, DType::f32}, 1);
                group.receive({&received, 1, DType::f32}, 1);
              })
              .wait();
          ADD_FAILURE() << "no error";
        } catch (const Timeout& error) {
          EXPECT_THAT(error.what(),
                      ::testing::AllOf(::testing::HasSubstr("and 1 more of its batch timed out"),
                                       ::testing::HasSubstr("waiting for rank 1")));
        }
      },
      {.timeout = std::chrono::milliseconds(900)});
}

}  // namespace
}  // namespace lockstep::comm
