#include "nccl/membership.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <sys/syscall.h>
#include <unistd.h>

#include "nccl/failure.hpp"
#include "nccl/handshake_listener.hpp"

namespace simgpu::nccl {
namespace {

struct MeshHandshake {
  Token token{};
  std::int32_t rank = 0;
};

// Equal for processes of one host that see each other's descriptors.
std::string host_key(const PeerInfo& identity) {
  std::array<char, 64> boot{}, space{}, name{};
  gethostname(name.data(), name.size() - 1);
  if (std::FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "r")) {
    [[maybe_unused]] const auto* line = std::fgets(boot.data(), 40, file);
    std::fclose(file);
  }
  [[maybe_unused]] const ssize_t length =
      readlink("/proc/self/ns/pid", space.data(), space.size() - 1);
  std::string key = std::string(boot.data(), strcspn(boot.data(), "\n")) + space.data() +
                    std::string(name.data());
  const char* transport = std::getenv("LOCKSTEP_SIM_NCCL_TRANSPORT");
  if (transport && std::strcmp(transport, "tcp") == 0)
    key = "tcp " + std::to_string(getpid()) + ' ' + std::to_string(identity.rank) + ' ' + key;
  return key;
}

bool share_memory(const PeerInfo& a, const PeerInfo& b) {
  return std::strncmp(a.host, b.host, sizeof a.host) == 0;
}

void refuse_shared_devices(const std::vector<PeerInfo>& infos) {
  for (std::size_t a = 0; a < infos.size(); ++a)
    for (std::size_t b = a + 1; b < infos.size(); ++b)
      if (share_memory(infos[a], infos[b]) && infos[a].device == infos[b].device)
        throw Failure(
            ncclInvalidUsage,
            "duplicate GPU: ranks " + std::to_string(a) + " and " + std::to_string(b) +
                " of one host are both on CUDA device " + std::to_string(infos[a].device) +
                "; each rank needs its own (LOCKSTEP_SIM_DEVICES says how many there are)");
}

Segment open_segment(const PeerInfo& info, int ranks_at_most) {
  auto segment = Segment::open(info.process, info.descriptor, ranks_at_most, info.token);
  if (!segment)
    throw Failure(ncclSystemError, "cannot open the shared memory of rank " +
                                       std::to_string(info.rank) +
                                       ", set LOCKSTEP_SIM_NCCL_TRANSPORT=tcp");
  return std::move(*segment);
}

Descriptor watch(int process) {
  if (process == getpid()) return {};
  Descriptor descriptor(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
  if (!descriptor && errno == ESRCH)
    throw Failure(ncclRemoteError, "a rank's process ended while the communicator was made");
  return descriptor;
}

// The higher rank connects to the lower one.
void connect_mesh(std::vector<Peer>& peers, const std::vector<PeerInfo>& infos, const PeerInfo& own,
                  Descriptor listener, const GiveUp& give_up) {
  std::size_t missing = 0;
  for (const PeerInfo& info : infos) {
    if (share_memory(info, own)) continue;
    if (info.rank > own.rank) {
      ++missing;
      continue;
    }
    const MeshHandshake handshake{info.token, own.rank};
    Descriptor socket = connect_to(info.listener, give_up);
    if (!send_all(socket, &handshake, sizeof handshake, give_up))
      throw Failure(ncclRemoteError, "rank " + std::to_string(info.rank) + " is gone");
    peers[static_cast<std::size_t>(info.rank)].socket = std::move(socket);
  }
  HandshakeListener handshakes(std::move(listener), own.token, sizeof(MeshHandshake));
  while (missing > 0) {
    if (give_up()) throw Failure(ncclInvalidUsage, "the communicator was aborted");
    auto connection = handshakes.next(20);
    if (!connection) continue;
    MeshHandshake handshake;
    std::memcpy(&handshake, connection->handshake.data(), sizeof handshake);
    const auto rank = static_cast<std::size_t>(handshake.rank);
    if (handshake.rank <= own.rank || rank >= peers.size() || peers[rank].socket) continue;
    peers[rank].socket = std::move(connection->socket);
    --missing;
  }
}

}  // namespace

std::unique_ptr<CallExchange> form(const PeerInfo& identity, int ranks_at_most,
                                   const ExchangePeerInfo& exchange, const GiveUp& give_up) {
  PeerInfo own = identity;
  fill_random(own.token.data(), own.token.size());
  std::snprintf(own.host, sizeof own.host, "%s", host_key(identity).c_str());
  Segment segment = Segment::create(ranks_at_most, own.token);
  Descriptor listener = listen_on(rendezvous_address());
  own.listener = local_endpoint(listener);
  own.process = getpid();
  own.descriptor = segment.descriptor();
  const std::vector<PeerInfo> infos = exchange(own);
  own.rank = static_cast<std::int32_t>(std::ranges::find(infos, own.token, &PeerInfo::token) -
                                       infos.begin());
  refuse_shared_devices(infos);

  std::vector<Peer> peers(infos.size());
  for (const PeerInfo& info : infos) {
    Peer& peer = peers[static_cast<std::size_t>(info.rank)];
    peer.is_self = info.rank == own.rank;
    if (peer.is_self || !share_memory(info, own)) continue;
    peer.segment = open_segment(info, ranks_at_most);
    peer.process = watch(info.process);
  }
  connect_mesh(peers, infos, own, std::move(listener), give_up);
  auto calls = std::make_unique<CallExchange>(own.rank, std::move(segment), std::move(peers));
  calls->announce(Presence::ready);
  calls->wait_until_ready(give_up);
  return calls;
}

}  // namespace simgpu::nccl
