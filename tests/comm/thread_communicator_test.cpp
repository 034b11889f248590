#include <stdexcept>

#include "comm/host_communicator_contract.hpp"
#include "lockstep/comm/thread_world.hpp"

namespace lockstep::comm {
namespace {

template <int ranks>
struct Threads {
  static void run(const std::function<void(Communicator&)>& body,
                  const CommunicatorOptions& options) {
    run_ranks(ranks, body, options);
  }
};

using ThreadWorlds = ::testing::Types<Threads<1>, Threads<2>, Threads<3>, Threads<4>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Thread, CommunicatorContract, ThreadWorlds);
INSTANTIATE_TYPED_TEST_SUITE_P(Thread, HostCommunicatorContract, ThreadWorlds);

TEST(ThreadWorld, ReportsTheFirstRankThatThrows) {
  try {
    run_ranks(3, [](Communicator& group) {
      if (group.rank() == 1) throw OutOfMemory("no memory for 7 bytes");
      group.barrier().wait();
    });
    FAIL() << "no error";
  } catch (const OutOfMemory& error) {
    EXPECT_STREQ(error.what(), "no memory for 7 bytes");
  }
}

TEST(ThreadWorld, TellsTheOtherRanksWhoFailed) {
  std::string seen;
  EXPECT_THROW(run_ranks(2,
                         [&](Communicator& group) {
                           if (group.rank() == 0) throw std::runtime_error("first");
                           try {
                             group.barrier().wait();
                           } catch (const PeerFailure& error) {
                             seen = error.what();
                           }
                         }),
               std::runtime_error);
  EXPECT_THAT(seen, ::testing::HasSubstr("rank 0 failed: first"));
}

TEST(ThreadWorld, DropsWorkWithoutWaiting) {
  std::vector<float> values(4, 1.0f);
  run_ranks(1, [&](Communicator& group) { group.all_reduce(Buffer(std::span(values))); });
  EXPECT_EQ(values[0], 1.0f);
}

TEST(ThreadWorld, RefusesAnEmptyGroup) { EXPECT_THROW(make_thread_group(0), InvalidArgument); }

TEST(ThreadWorld, RunsUncheckedWhenAsked) {
  run_ranks(3,
            [](Communicator& group) {
              auto values = contract_values<float>(group.rank(), 100'003);
              group.all_reduce(Buffer(std::span(values))).wait();
              EXPECT_EQ(count_wrong(values, ReduceKind::sum, group.size()), 0);
            },
            {.timeout = std::chrono::seconds(60), .check_signatures = false});
}

}  // namespace
}  // namespace lockstep::comm
