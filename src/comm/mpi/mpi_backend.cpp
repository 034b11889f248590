#include <utility>

#include "comm/backends.hpp"
#include "comm/host/message_executor.hpp"
#include "comm/mpi/mpi_bootstrap.hpp"
#include "comm/mpi/mpi_call.hpp"
#include "comm/mpi/mpi_transport.hpp"

// The backend of MPI's messages, for ranks that MPI started.

namespace lockstep::comm {
namespace {

std::string refusal(const Bootstrap& bootstrap, Device device) {
  if (!device.is_cpu()) return "it works on host memory";
  return dynamic_cast<const MpiBootstrap*>(&bootstrap) ? "" : "MPI did not start these ranks";
}

std::unique_ptr<host::Transport> connect(Bootstrap& bootstrap) {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(dynamic_cast<MpiBootstrap&>(bootstrap).communicator(), &copy),
            "MPI_Comm_dup");
  return std::make_unique<MpiTransport>(copy);
}

std::unique_ptr<CommunicatorBackend> make(WorldPlan&& plan) {
  return host::make_message_backend(connect(plan.bootstrap), "world", plan.options,
                                    std::move(plan.membership));
}

}  // namespace

const BackendFactory& mpi_backend() {
  static const BackendFactory factory{"mpi", refusal, make, connect};
  return factory;
}

}  // namespace lockstep::comm
