#include <utility>

#include "comm/backends.hpp"
#include "comm/host/message_executor.hpp"
#include "comm/tcp/tcp_transport.hpp"
#include "comm/token.hpp"

// The backend of sockets: serves any job on host memory, however its ranks found each other.

namespace lockstep::comm {
namespace {

std::string refusal(const Bootstrap&, Device device) {
  return device.is_cpu() ? "" : "it works on host memory";
}

std::unique_ptr<host::Transport> connect(Bootstrap& bootstrap) {
  // A token of its own for each mesh: connections of two meshes cannot be mixed up.
  const std::string token =
      bootstrap.broadcast_bytes(bootstrap.rank() == 0 ? make_token() : "", 0, "token of a mesh");
  const tcp::MeshPlan mesh{bootstrap.rank(), bootstrap.size(), bootstrap.address(), token,
                           bootstrap.timeout()};
  return std::make_unique<tcp::TcpTransport>(mesh, [&](std::string_view own) {
    return bootstrap.all_gather_bytes(own, "addresses of a mesh");
  });
}

std::unique_ptr<CommunicatorBackend> make(WorldPlan&& plan) {
  return host::make_message_backend(connect(plan.bootstrap), "world", plan.options,
                                    std::move(plan.membership));
}

}  // namespace

const BackendFactory& tcp_backend() {
  static const BackendFactory factory{"tcp", refusal, make, connect};
  return factory;
}

}  // namespace lockstep::comm
