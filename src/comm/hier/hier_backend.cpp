#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "comm/backends.hpp"
#include "comm/hier/hier_executor.hpp"
#include "comm/host/host_backend.hpp"
#include "comm/host/message_executor.hpp"

// The backend of several hosts with several ranks each: memory inside, messages between.

namespace lockstep::comm {
namespace {

// By the first rank that is on the host of each.
std::vector<int> hosts_of(const Bootstrap& bootstrap) {
  std::vector<int> hosts;
  for (const Peer& peer : bootstrap.peers()) {
    const auto first = std::ranges::find(bootstrap.peers(), peer.network, &Peer::network);
    hosts.push_back(static_cast<int>(first - bootstrap.peers().begin()));
  }
  return hosts;
}

std::string refusal(const Bootstrap& bootstrap, Device device) {
  if (!device.is_cpu()) return "it works on host memory";
  if (bootstrap.is_one_host()) return "the ranks are on one host";
  const auto hosts = hosts_of(bootstrap);
  const bool is_spread = std::set<int>(hosts.begin(), hosts.end()).size() == hosts.size();
  return is_spread ? "each rank has a host for itself" : "";
}

std::unique_ptr<CommunicatorBackend> make(WorldPlan&& plan) {
  Bootstrap& bootstrap = plan.bootstrap;
  SplitPlan whole;
  whole.place = bootstrap.rank();
  whole.name = "world";
  whole.members.resize(static_cast<std::size_t>(bootstrap.size()));
  std::iota(whole.members.begin(), whole.members.end(), 0);
  whole.all_gather = [&](std::string_view own) {
    return bootstrap.all_gather_bytes(own, "hosts' memory and leaders");
  };
  auto messages = std::make_unique<host::MessageExecutor>(
      message_backend(bootstrap).connect(bootstrap), whole.name, false);
  host::Executor& all = *messages;
  try {
    auto executor = hier::compose(all, std::move(messages), hosts_of(bootstrap), whole,
                                  plan.options.check_signatures);
    return std::make_unique<host::HostBackend>(std::move(executor), whole.name, plan.options,
                                               std::move(plan.membership));
  } catch (const Unsupported& error) {
    throw BackendUnavailable(error.what());
  }
}

}  // namespace

const BackendFactory& hier_backend() {
  static const BackendFactory factory{"hier", refusal, make};
  return factory;
}

}  // namespace lockstep::comm
