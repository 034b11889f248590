#include <numeric>

#include "comm/backends.hpp"
#include "comm/contracts.hpp"
#include "comm/hier/hier_executor.hpp"
#include "comm/host/host_backend.hpp"
#include "comm/host/message_executor.hpp"
#include "support/mpi_world.hpp"

// Ranks of one host that take each other for ranks of several: memory inside, MPI between.

namespace lockstep::comm {
namespace {

enum class Placement { by_host, by_node };

using testing::ContractRanks, testing::name_of_ranks;

void run_on_hosts(Placement placement, const ContractRanks::Body& body,
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
        hier::compose(whole, std::move(messages), hosts, plan, options.check_signatures), plan.name,
        options));
    EXPECT_EQ(group->backend(), "hier");
    body(*group);
  }
  bootstrap.barrier();
}

ContractRanks placed(std::string name, Placement placement) {
  return {.name = std::move(name),
          .run = [=](const ContractRanks::Body& body, const CommunicatorOptions& options) {
            run_on_hosts(placement, body, options);
          }};
}

const ContractRanks by_host = placed("ByHost", Placement::by_host);
const auto placements = ::testing::Values(by_host, placed("ByNode", Placement::by_node));
INSTANTIATE_TEST_SUITE_P(HierMpi, CommunicatorContract, placements, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(HierMpi, BatchContract, placements, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(HierMpi, HostBatchContract, placements, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(HierMpi, HostWaitingContract, placements, name_of_ranks);
const auto in_order = ::testing::Values(by_host);
INSTANTIATE_TEST_SUITE_P(HierMpi, HostCommunicatorContract, in_order, name_of_ranks);

TEST(HierBackend, IsNotForRanksOfOneHost) {
  CommunicatorOptions options;
  options.backend = "hier";
  EXPECT_THROW(make_communicator(testing::test_bootstrap(), cpu, options), Unsupported);
}

}  // namespace
}  // namespace lockstep::comm
