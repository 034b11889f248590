#include "ddp/replica_contract.hpp"
#include "ddp/use_contract.hpp"
#include "lockstep/comm/thread_world.hpp"

namespace lockstep::ddp::testing {
namespace {

template <int ranks>
struct Threads {
  static void run(const std::function<void(Communicator&)>& body) { comm::run_ranks(ranks, body); }
};

using ThreadWorlds = ::testing::Types<Threads<1>, Threads<2>, Threads<3>, Threads<4>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Thread, ReplicaContract, ThreadWorlds);
INSTANTIATE_TYPED_TEST_SUITE_P(Thread, UseContract, ThreadWorlds);

}  // namespace
}  // namespace lockstep::ddp::testing
