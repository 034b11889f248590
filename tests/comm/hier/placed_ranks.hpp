#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "comm/backends.hpp"
#include "comm/hier/hier_executor.hpp"
#include "comm/host/host_backend.hpp"
#include "comm/host/message_executor.hpp"
#include "support/mpi_world.hpp"

/// @file
/// Ranks of one host that take each other for ranks of several: memory inside, MPI between.

namespace lockstep::testing {

/// How the ranks are dealt to hosts: two after each other to each, or in turns to two hosts.
enum class Placement { by_host, by_node };

/// Runs `body` on each rank, with a group over `hier`; over `shm` where all are on one host.
inline void run_on_hosts(Placement placement, const ContractRanks::Body& body,
                         const comm::CommunicatorOptions& options) {
  comm::Bootstrap& bootstrap = test_bootstrap();
  comm::SplitPlan plan;
  plan.members.resize(static_cast<std::size_t>(bootstrap.size()));
  std::iota(plan.members.begin(), plan.members.end(), 0);
  plan.place = bootstrap.rank();
  plan.name = "world";
  plan.all_gather = [&](std::string_view own) { return bootstrap.all_gather_bytes(own, "test"); };
  std::vector<int> hosts = plan.members;
  for (int& host : hosts) host = placement == Placement::by_host ? host / 2 : host % 2;
  {
    auto messages = std::make_unique<comm::host::MessageExecutor>(
        comm::message_backend(bootstrap).connect(bootstrap), plan.name, false);
    comm::host::Executor& whole = *messages;
    const auto group = make_intrusive<Communicator>(std::make_unique<comm::host::HostBackend>(
        comm::hier::compose(whole, std::move(messages), hosts, plan, options.check_signatures),
        plan.name, options));
    const bool is_one_host = std::ranges::count(hosts, hosts.front()) == group->size();
    EXPECT_EQ(group->backend(), is_one_host ? "shm" : "hier");
    body(*group);
  }
  bootstrap.barrier();
}

/// For contract suites.
inline ContractRanks placed(std::string name, Placement placement) {
  return {.name = std::move(name),
          .run = [=](const ContractRanks::Body& body, const comm::CommunicatorOptions& options) {
            run_on_hosts(placement, body, options);
          }};
}

}  // namespace lockstep::testing
