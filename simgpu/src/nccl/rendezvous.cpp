#include "nccl/rendezvous.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "nccl/failure.hpp"
#include "nccl/handshake_listener.hpp"

namespace simgpu::nccl {
namespace {

// The content of a unique id.
struct UniqueId {
  char magic[8] = {'s', 'i', 'm', 'n', 'c', 'c', 'l', '1'};
  Token token{};
  Endpoint place;
};
static_assert(sizeof(UniqueId) <= sizeof(ncclUniqueId));

struct Handshake {
  Token token{};
  std::int32_t ranks = 0;
  PeerInfo info;
};

struct Reply {
  std::int32_t status = ncclSuccess;
  char message[124] = {};
};

constexpr int most_ranks = 4096;

// The ranks that have joined one rendezvous.
class Rendezvous {
 public:
  Rendezvous(Descriptor listener, const Token& token)
      : listener_(std::move(listener), token, sizeof(Handshake)) {}

  void run() {
    while (reply_.status == ncclSuccess && (infos_.empty() || arrived_ < infos_.size())) {
      if (auto connection = listener_.next(infos_.empty() ? 1000 : 20))
        admit(std::move(*connection));
      if (reply_.status == ncclSuccess) look_for_departures();
    }
    for (const Descriptor& socket : sockets_) reply(socket);
  }

 private:
  void admit(HandshakeListener::Connection connection) {
    Handshake handshake;
    std::memcpy(&handshake, connection.handshake.data(), sizeof handshake);
    const int rank = handshake.info.rank, ranks = handshake.ranks;
    sockets_.push_back(std::move(connection.socket));
    if (ranks < 1 || ranks > most_ranks || rank < 0 || rank >= ranks)
      return fail(ncclInvalidArgument, "there is no rank %d of %d", rank, ranks);
    if (infos_.empty()) infos_.resize(static_cast<std::size_t>(ranks));
    if (infos_.size() != static_cast<std::size_t>(ranks))
      return fail(ncclInvalidArgument, "ranks disagree about their number: %d and %d",
                  static_cast<int>(infos_.size()), ranks);
    PeerInfo& info = infos_[static_cast<std::size_t>(rank)];
    if (info.process != 0)
      return fail(ncclInvalidArgument, "rank %d of %d joined twice", rank, ranks);
    info = handshake.info;
    ++arrived_;
  }

  // Nobody says anything before the reply: what can be read is the end of a connection.
  void look_for_departures() {
    for (const Descriptor& socket : sockets_)
      if (wait_readable(socket, 0))
        return fail(ncclRemoteError, "a rank left before all had come (%d of %d were there)",
                    static_cast<int>(arrived_), static_cast<int>(infos_.size()));
  }

  void fail(ncclResult_t status, const char* format, int a, int b) {
    reply_.status = status;
    std::snprintf(reply_.message, sizeof reply_.message, format, a, b);
  }

  void reply(const Descriptor& socket) {
    const auto never = [] { return false; };
    if (send_all(socket, &reply_, sizeof reply_, never) && reply_.status == ncclSuccess)
      send_all(socket, infos_.data(), infos_.size() * sizeof(PeerInfo), never);
  }

  HandshakeListener listener_;
  std::vector<Descriptor> sockets_;
  std::vector<PeerInfo> infos_;
  std::size_t arrived_ = 0;
  Reply reply_;
};

}  // namespace

ncclUniqueId start_rendezvous() {
  UniqueId unique;
  fill_random(unique.token.data(), unique.token.size());
  Descriptor listener = listen_on(rendezvous_address());
  unique.place = local_endpoint(listener);
  // Detached: it ends when all have come, or with the process.
  std::thread([rendezvous = Rendezvous(std::move(listener), unique.token)]() mutable {
    rendezvous.run();
  }).detach();
  ncclUniqueId id{};
  std::memcpy(id.internal, &unique, sizeof unique);
  return id;
}

std::vector<PeerInfo> join_rendezvous(const ncclUniqueId& id, const PeerInfo& info, int ranks,
                                      const GiveUp& give_up) {
  UniqueId unique;
  const UniqueId expected;
  std::memcpy(&unique, id.internal, sizeof unique);
  if (std::memcmp(unique.magic, expected.magic, sizeof expected.magic) != 0)
    throw Failure(ncclInvalidArgument, "the unique id does not come from ncclGetUniqueId");
  const Descriptor socket = connect_to(unique.place, give_up);
  const Handshake handshake{unique.token, ranks, info};
  Reply answer;
  std::vector<PeerInfo> infos(static_cast<std::size_t>(ranks));
  if (!send_all(socket, &handshake, sizeof handshake, give_up) ||
      !receive_all(socket, &answer, sizeof answer, give_up))
    throw Failure(ncclRemoteError, "the process that made the unique id is gone");
  if (answer.status != ncclSuccess)
    throw Failure(static_cast<ncclResult_t>(answer.status),
                  std::string(answer.message, strnlen(answer.message, sizeof answer.message)));
  if (!receive_all(socket, infos.data(), infos.size() * sizeof(PeerInfo), give_up))
    throw Failure(ncclRemoteError, "the process that made the unique id is gone");
  return infos;
}

}  // namespace simgpu::nccl
