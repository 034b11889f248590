#include "comm/random_operations.hpp"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "comm/groups.hpp"
#include "lockstep/comm/thread_world.hpp"

// Random operations over each backend that threads can have.

namespace lockstep::comm {
namespace {

void run_random(Communicator& group, int operations, std::int64_t longest = 20'000) {
  static const char* const chosen = std::getenv("LOCKSTEP_RANDOM_SEED");
  const unsigned seed = (chosen ? static_cast<unsigned>(std::atoi(chosen)) : 1U) +
                        1000U * static_cast<unsigned>(group.size());
  RandomOperations random(group, seed, {.longest = longest});
  EXPECT_EQ(random.run(operations), "");
}

TEST(RandomOperations, OverAWindowGiveWhatFoldGives) {
  for (const int ranks : {2, 3, 4, 5, 7, 8})
    run_over_window(ranks, [](Communicator& group) { run_random(group, 80); });
}

TEST(RandomOperations, OverAWindowOfManyRanksGiveWhatFoldGives) {
  for (const int ranks : {9, 12, 16, 17})
    run_over_window(ranks, [](Communicator& group) { run_random(group, 30, 5000); });
}

TEST(RandomOperations, OverThreadsGiveWhatFoldGives) {
  for (const int ranks : {1, 2, 3, 5, 8, 9, 12, 16, 17})
    run_ranks(ranks, [](Communicator& group) { run_random(group, 30, 5000); });
}

TEST(RandomOperations, OverSocketsGiveWhatFoldGives) {
  for (const int ranks : {3, 8, 9, 12})
    run_over_messages(ranks, [](Communicator& group) { run_random(group, 30, 5000); });
}

TEST(RandomOperations, OverHostsGiveWhatFoldGives) {
  for (const Hosts& hosts :
       {Hosts{0, 0, 1, 1}, Hosts{0, 0, 0, 1, 2, 2}, Hosts{0, 1, 0, 2, 1, 0, 2}})
    run_over_hosts(hosts, [](Communicator& group) { run_random(group, 40); });
}

TEST(RandomOperations, OverMoreThanEightHostsGiveWhatFoldGives) {
  for (const Hosts& hosts :
       {Hosts{0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, Hosts{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 3}})
    for (const Messages messages : {Messages::threads, Messages::sockets})
      run_over_hosts(
          hosts, [](Communicator& group) { run_random(group, 25, 5000); },
          {.timeout = std::chrono::seconds(60)}, messages);
}

}  // namespace
}  // namespace lockstep::comm
