#include "kernels/launch_syntax.hpp"

#include <cstdlib>
#include <exception>
#include <utility>
#include <vector>

#include "base/report.hpp"
#include "simgpu/launch_syntax.hpp"

namespace simgpu {
namespace {

struct Pending {
  cudaLaunchConfig_t configuration;
  CallSite site;
};

/// More than one where arguments of a launch launch kernels themselves.
thread_local std::vector<Pending> pending;
thread_local std::optional<CallSite> launch_site;

}  // namespace

LaunchConfiguration::LaunchConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes,
                                         cudaStream_t stream)
    : depth_(pending.size()), exceptions_(std::uncaught_exceptions()) {
  pending.push_back({{grid, block, shared_bytes, stream, nullptr, 0}, CallSite::here()});
}

LaunchConfiguration::~LaunchConfiguration() {
  if (pending.size() <= depth_) return;
  const CallSite site = pending[depth_].site;
  pending.resize(depth_);
  if (std::uncaught_exceptions() > exceptions_) return;
  report(Finding::invalid_launch,
         "a kernel that lockstep_simulate_kernels has not compiled is launched by <<<>>>, and ran "
         "on the host\nlaunched by " +
             describe(site));
  std::abort();
}

bool is_launching() { return !pending.empty(); }

cudaLaunchConfig_t take_launch_configuration() {
  const Pending last = pending.back();
  pending.pop_back();
  launch_site = last.site;
  return last.configuration;
}

std::optional<CallSite> take_launch_site() { return std::exchange(launch_site, std::nullopt); }

}  // namespace simgpu
