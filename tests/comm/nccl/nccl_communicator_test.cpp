#include "comm/communicator_contract.hpp"
#include "comm/staged_communicator.hpp"
#include "lockstep/comm/info.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "support/mpi_world.hpp"

namespace lockstep::comm {
namespace {

/// Ranks of an MPI job with a GPU each.
struct NcclRanks {
  static std::string missing() {
    const int gpus = cuda_device_count(), ranks = testing::test_bootstrap().local_size();
    if (gpus == 0) return "no CUDA device on this machine";
    if (gpus < ranks)
      return std::to_string(ranks) + " ranks but " + std::to_string(gpus) + " CUDA devices";
    const auto libraries = components();
    const bool has_nccl = std::ranges::any_of(
        libraries, [](const Component& library) { return library.name == "NCCL"; });
    return has_nccl ? "" : "no NCCL in this build";
  }

  static void run(const std::function<void(Communicator&)>& body,
                  const CommunicatorOptions& options) {
    const auto staged = [&](Communicator& group) { StagedCommunicator::lend(group, body); };
    testing::with_world(staged, options, cuda(testing::test_bootstrap().local_rank()));
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Nccl, CommunicatorContract, NcclRanks);

}  // namespace
}  // namespace lockstep::comm
