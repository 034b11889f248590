#include "comm/batch_contract.hpp"
#include "comm/communicator_contract.hpp"
#include "comm/uploading_communicator.hpp"
#include "support/gpu_ranks.hpp"

namespace lockstep::comm {
namespace {

/// Ranks of an MPI job with a GPU each.
struct NcclRanks {
  static std::string missing() { return testing::missing_for_gpu_ranks(); }

  static void run(const std::function<void(Communicator&)>& body,
                  const CommunicatorOptions& options) {
    const auto uploading = [&](Communicator& group) { run_uploading(group, body); };
    testing::with_world(uploading, options, testing::gpu_of_rank());
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Nccl, CommunicatorContract, NcclRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Nccl, BatchContract, NcclRanks);

}  // namespace
}  // namespace lockstep::comm
