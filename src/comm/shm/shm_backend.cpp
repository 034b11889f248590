#include <numeric>
#include <utility>

#include "comm/backends.hpp"
#include "comm/host/host_backend.hpp"
#include "comm/shm/meeting.hpp"
#include "comm/shm/shm_executor.hpp"

// The backend of ranks that share a host's memory.

namespace lockstep::comm {
namespace {

// A mailbox for each pair of them: more would leave pieces of few bytes.
constexpr int most_ranks = 1024;

std::string refusal(const Bootstrap& bootstrap, Device device) {
  if (!device.is_cpu()) return "it works on host memory";
  if (bootstrap.size() == 1) return "it is for jobs of several ranks";
  if (bootstrap.size() > most_ranks) return "a window is for at most 1024 ranks";
  return bootstrap.is_one_host() ? "" : "the ranks are on several hosts";
}

std::unique_ptr<shm::Window> enter_world(Bootstrap& bootstrap) {
  std::vector<int> all(static_cast<std::size_t>(bootstrap.size()));
  std::iota(all.begin(), all.end(), 0);
  const auto exchange = [&](std::string_view own) {
    return bootstrap.all_gather_bytes(own, "shared memory");
  };
  try {
    return shm::enter_window({all, bootstrap.rank(), exchange});
  } catch (const Unsupported& error) {
    throw BackendUnavailable(error.what());
  }
}

std::unique_ptr<CommunicatorBackend> make(WorldPlan&& plan) {
  auto executor = std::make_unique<shm::ShmExecutor>(
      enter_world(plan.bootstrap), plan.bootstrap.rank(), "world", plan.options.check_signatures);
  return std::make_unique<host::HostBackend>(std::move(executor), "world", plan.options,
                                             std::move(plan.membership));
}

}  // namespace

const BackendFactory& shm_backend() {
  static const BackendFactory factory{"shm", refusal, make};
  return factory;
}

}  // namespace lockstep::comm
