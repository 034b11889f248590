#include "comm/contracts.hpp"
#include "comm/uploading_communicator.hpp"
#include "support/gpu_ranks.hpp"

namespace lockstep::comm {
namespace {

using testing::ContractRanks, testing::name_of_ranks;

// Ranks of an MPI job with a GPU each.
const auto gpus = ::testing::Values(ContractRanks{
    .name = "Gpus",
    .run =
        [](const ContractRanks::Body& body, const CommunicatorOptions& options) {
          const auto uploading = [&](Communicator& group) { run_uploading(group, body); };
          testing::with_world(uploading, options, testing::gpu_of_rank());
        },
    .missing = testing::missing_for_gpu_ranks,
    .connects_in_order = true});
INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Nccl, BatchContract, gpus, name_of_ranks);

}  // namespace
}  // namespace lockstep::comm
