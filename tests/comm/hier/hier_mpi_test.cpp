#include <numeric>

#include "comm/backends.hpp"
#include "comm/batch_contract.hpp"
#include "comm/hier/hier_executor.hpp"
#include "comm/host/host_backend.hpp"
#include "comm/host/message_executor.hpp"
#include "comm/host_batch_contract.hpp"
#include "comm/host_communicator_contract.hpp"
#include "comm/host_waiting_contract.hpp"
#include "support/mpi_world.hpp"

// Ranks of one host that take each other for ranks of several: memory inside, MPI between.

namespace lockstep::comm {
namespace {

enum class Placement { by_host, by_node };

template <Placement placement>
struct HierRanks {
  static void run(const std::function<void(Communicator&)>& body,
                  const CommunicatorOptions& options) {
    Bootstrap& bootstrap = testing::test_bootstrap();
    SplitPlan plan;
    plan.members.resize(static_cast<std::size_t>(bootstrap.size()));
    std::iota(plan.members.begin(), plan.members.end(), 0);
    plan.place = bootstrap.rank();
    plan.name = "world";
    plan.all_gather = [&](std::string_view own) { return bootstrap.all_gather_bytes(own, "test"); };
    std::vector<int> hosts = plan.members;
    for (int& host : hosts) host = placement == Placement::by_host ? host / 2 : host % 2;
    {
      auto messages = std::make_unique<host::MessageExecutor>(
          message_backend(bootstrap).connect(bootstrap), plan.name, false);
      host::Executor& whole = *messages;
      const auto group = make_intrusive<Communicator>(std::make_unique<host::HostBackend>(
          hier::compose(whole, std::move(messages), hosts, plan, options.check_signatures),
          plan.name, options));
      EXPECT_EQ(group->backend(), "hier");
      body(*group);
    }
    bootstrap.barrier();
  }
};
using Placements = ::testing::Types<HierRanks<Placement::by_host>, HierRanks<Placement::by_node>>;
INSTANTIATE_TYPED_TEST_SUITE_P(HierMpi, CommunicatorContract, Placements);
INSTANTIATE_TYPED_TEST_SUITE_P(HierMpi, BatchContract, Placements);
INSTANTIATE_TYPED_TEST_SUITE_P(HierMpi, HostBatchContract, Placements);
INSTANTIATE_TYPED_TEST_SUITE_P(HierMpi, HostWaitingContract, Placements);
using InOrder = HierRanks<Placement::by_host>;
INSTANTIATE_TYPED_TEST_SUITE_P(HierMpi, HostCommunicatorContract, InOrder);

TEST(HierBackend, IsNotForRanksOfOneHost) {
  CommunicatorOptions options;
  options.backend = "hier";
  EXPECT_THROW(make_communicator(testing::test_bootstrap(), cpu, options), Unsupported);
}

}  // namespace
}  // namespace lockstep::comm
