#include <utility>

#include "comm/backends.hpp"
#include "comm/host/message_executor.hpp"
#include "comm/self/self_transport.hpp"

// The backend of a job of one process on host memory.

namespace lockstep::comm {
namespace {

std::string refusal(const Bootstrap& bootstrap, Device device) {
  if (!device.is_cpu()) return "it works on host memory";
  return bootstrap.size() == 1 ? "" : "it is for jobs of one rank";
}

std::unique_ptr<CommunicatorBackend> make(WorldPlan&& plan) {
  return host::make_message_backend(std::make_unique<SelfTransport>(), "world", plan.options,
                                    std::move(plan.membership));
}

}  // namespace

const BackendFactory& self_backend() {
  static const BackendFactory factory{"self", refusal, make};
  return factory;
}

}  // namespace lockstep::comm
