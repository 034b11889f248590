#include "lockstep/comm/bootstrap.hpp"

#include <charconv>
#include <utility>

#include <unistd.h>

#include "comm/bootstrap/bootstraps.hpp"
#include "comm/host/host_communicator.hpp"

namespace lockstep::comm {
namespace {

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

Peer parse_peer(const std::string& text) {
  Peer peer;
  const std::size_t separator = text.find('\n');
  LOCKSTEP_CHECK(separator != std::string::npos, CorruptData, "malformed peer '", text, "'");
  peer.host = text.substr(0, separator);
  std::from_chars(text.data() + separator + 1, text.data() + text.size(), peer.pid);
  return peer;
}

}  // namespace

std::string Bootstrap::broadcast_bytes(std::string_view bytes, int root) {
  LOCKSTEP_CHECK(root >= 0 && root < size(), InvalidArgument, "broadcast: root must be 0 to ",
                 size() - 1, ", got ", root);
  auto all = all_gather_bytes(rank() == root ? bytes : std::string_view{});
  return std::move(all[static_cast<std::size_t>(root)]);
}

void Bootstrap::discover_peers() {
  const std::string own = host_name() + "\n" + std::to_string(getpid());
  for (const std::string& text : all_gather_bytes(own)) peers_.push_back(parse_peer(text));
  const std::string& host = peers_[static_cast<std::size_t>(rank())].host;
  local_rank_ = local_size_ = 0;
  for (int other = 0; other < size(); ++other) {
    if (peers_[static_cast<std::size_t>(other)].host != host) continue;
    ++local_size_;
    if (other < rank()) ++local_rank_;
  }
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
  if (device.is_cuda()) return make_nccl_communicator(bootstrap, device, options);
  return make_intrusive<host::HostCommunicator>(bootstrap.make_transport(), "world", options);
}

}  // namespace lockstep::comm
