#include "lockstep/comm/bootstrap.hpp"

#include <utility>

#include "comm/bootstrap/bootstraps.hpp"
#include "comm/bootstrap/host_identity.hpp"
#include "comm/group_registry.hpp"
#include "comm/host/host_backend.hpp"

namespace lockstep::comm {

Bootstrap::Bootstrap() : groups_(std::make_shared<GroupRegistry>()) {}

std::string Bootstrap::broadcast_bytes(std::string_view bytes, int root) {
  LOCKSTEP_CHECK(root >= 0 && root < size(), InvalidArgument, "broadcast: root must be 0 to ",
                 size() - 1, ", got ", root);
  auto all = all_gather_bytes(rank() == root ? bytes : std::string_view{});
  return std::move(all[static_cast<std::size_t>(root)]);
}

void Bootstrap::discover_peers() {
  for (const std::string& text : all_gather_bytes(to_text(describe_this_process())))
    peers_.push_back(parse_peer(text));
  const LocalPlace place = local_place(peers_, rank());
  local_rank_ = place.rank;
  local_size_ = place.size;
}

std::unique_ptr<Bootstrap> make_bootstrap(const BootstrapOptions& options) {
  if (const auto job = explicit_job(options))
    return job->size == 1 ? make_single_bootstrap() : make_tcp_bootstrap(*job);
  if (const auto launch = detect_mpi_launcher()) return make_mpi_bootstrap(*launch);
  if (const auto job = detect_environment_job(options))
    return job->size == 1 ? make_single_bootstrap() : make_tcp_bootstrap(*job);
  return make_single_bootstrap();
}

CommunicatorPtr make_communicator(Bootstrap& bootstrap, Device device,
                                  const CommunicatorOptions& options) {
  return make_communicator(bootstrap, device, options, nullptr);
}

CommunicatorPtr make_communicator(Bootstrap& bootstrap, Device device,
                                  const CommunicatorOptions& options,
                                  const ComparisonPtr& comparison) {
  if (device.is_cuda()) return make_nccl_communicator(bootstrap, device, options, comparison);
  GroupMembership membership(bootstrap.groups());
  return make_intrusive<Communicator>(std::make_unique<host::HostBackend>(
      bootstrap.make_transport(), "world", options, std::move(membership)));
}

}  // namespace lockstep::comm
