#include "ddp/replica_contract.hpp"
#include "ddp/use_contract.hpp"
#include "support/gpu_ranks.hpp"

namespace lockstep::ddp::testing {
namespace {

struct NcclRanks {
  static constexpr bool needs_session_to_abort = true;

  static void run(const std::function<void(Communicator&)>& body) {
    const std::string missing = lockstep::testing::missing_for_gpu_ranks();
    if (!missing.empty()) GTEST_SKIP() << missing;
    device_of_rank = lockstep::testing::gpu_of_rank();
    lockstep::testing::with_world(body, {}, device_of_rank);
    device_of_rank = cpu;
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Nccl, ReplicaContract, NcclRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Nccl, UseContract, NcclRanks);

}  // namespace
}  // namespace lockstep::ddp::testing
