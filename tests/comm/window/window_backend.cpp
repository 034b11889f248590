#include "comm/window/window_backend.hpp"

#include <utility>

#include "comm/host/host_backend.hpp"
#include "comm/window/window_executor.hpp"

namespace lockstep::comm {
namespace {

using window::Window;

std::string refusal(const Bootstrap& bootstrap, Device device) {
  if (!device.is_cpu()) return "it works on host memory";
  return bootstrap.is_one_host() ? "" : "the ranks are on several hosts";
}

std::unique_ptr<CommunicatorBackend> make(WorldPlan&& plan) {
  Bootstrap& bootstrap = plan.bootstrap;
  std::unique_ptr<Window> window;
  if (bootstrap.rank() == 0) window = std::make_unique<Window>(bootstrap.size());
  const std::string name = bootstrap.broadcast_bytes(window ? window->name() : "", 0, "window");
  if (!window) window = std::make_unique<Window>(name, bootstrap.size());
  bootstrap.barrier();  // whoever made it keeps it until all have mapped it
  auto executor = std::make_unique<window::WindowExecutor>(std::move(window), bootstrap.rank(),
                                                           bootstrap.size(), "world",
                                                           plan.options.check_signatures);
  return std::make_unique<host::HostBackend>(std::move(executor), "world", plan.options,
                                             std::move(plan.membership));
}

}  // namespace

const BackendFactory& window_backend() {
  static const BackendFactory factory{"window", refusal, make};
  return factory;
}

}  // namespace lockstep::comm
