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
std::string host_key(const Card& identity) {
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

bool share_memory(const Card& a, const Card& b) {
  return std::strncmp(a.host, b.host, sizeof a.host) == 0;
}

void refuse_shared_devices(const std::vector<Card>& cards) {
  for (std::size_t a = 0; a < cards.size(); ++a)
    for (std::size_t b = a + 1; b < cards.size(); ++b)
      if (share_memory(cards[a], cards[b]) && cards[a].device == cards[b].device)
        throw Failure(
            ncclInvalidUsage,
            "duplicate GPU: ranks " + std::to_string(a) + " and " + std::to_string(b) +
                " of one host are both on CUDA device " + std::to_string(cards[a].device) +
                "; each rank needs its own (LOCKSTEP_SIM_DEVICES says how many there are)");
}

Segment open_segment(const Card& card, int ranks_at_most) {
  auto segment = Segment::open(card.process, card.descriptor, ranks_at_most, card.token);
  if (!segment)
    throw Failure(ncclSystemError, "cannot open the shared memory of rank " +
                                       std::to_string(card.rank) +
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
void connect_mesh(std::vector<Peer>& peers, const std::vector<Card>& cards, const Card& own,
                  Descriptor listener, const GiveUp& give_up) {
  std::size_t missing = 0;
  for (const Card& card : cards) {
    if (share_memory(card, own)) continue;
    if (card.rank > own.rank) {
      ++missing;
      continue;
    }
    const MeshHandshake handshake{card.token, own.rank};
    Descriptor socket = connect_to(card.listener, give_up);
    if (!send_all(socket, &handshake, sizeof handshake, give_up))
      throw Failure(ncclRemoteError, "rank " + std::to_string(card.rank) + " is gone");
    peers[static_cast<std::size_t>(card.rank)].socket = std::move(socket);
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

std::unique_ptr<CallExchange> form(const Card& identity, int ranks_at_most,
                                   const ExchangeCards& exchange, const GiveUp& give_up) {
  Card own = identity;
  fill_random(own.token.data(), own.token.size());
  std::snprintf(own.host, sizeof own.host, "%s", host_key(identity).c_str());
  Segment segment = Segment::create(ranks_at_most, own.token);
  Descriptor listener = listen_on(rendezvous_address());
  own.listener = local_endpoint(listener);
  own.process = getpid();
  own.descriptor = segment.descriptor();
  const std::vector<Card> cards = exchange(own);
  own.rank =
      static_cast<std::int32_t>(std::ranges::find(cards, own.token, &Card::token) - cards.begin());
  refuse_shared_devices(cards);

  std::vector<Peer> peers(cards.size());
  for (const Card& card : cards) {
    Peer& peer = peers[static_cast<std::size_t>(card.rank)];
    peer.is_self = card.rank == own.rank;
    if (peer.is_self || !share_memory(card, own)) continue;
    peer.segment = open_segment(card, ranks_at_most);
    peer.process = watch(card.process);
  }
  connect_mesh(peers, cards, own, std::move(listener), give_up);
  auto calls = std::make_unique<CallExchange>(own.rank, std::move(segment), std::move(peers));
  calls->announce(Presence::ready);
  calls->wait_until_ready(give_up);
  return calls;
}

}  // namespace simgpu::nccl
