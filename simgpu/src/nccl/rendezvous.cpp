#include "nccl/rendezvous.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "nccl/doorkeeper.hpp"
#include "nccl/failure.hpp"

namespace simgpu::nccl {
namespace {

// The content of a unique id.
struct Invitation {
  char magic[8] = {'s', 'i', 'm', 'n', 'c', 'c', 'l', '1'};
  Token token{};
  Endpoint place;
};
static_assert(sizeof(Invitation) <= sizeof(ncclUniqueId));

struct Greeting {
  Token token{};
  std::int32_t ranks = 0;
  Card card;
};

struct Answer {
  std::int32_t status = ncclSuccess;
  char message[124] = {};
};

constexpr int most_ranks = 4096;

// The ranks that have come to one meeting.
class Meeting {
 public:
  Meeting(Descriptor listener, const Token& token)
      : door_(std::move(listener), token, sizeof(Greeting)) {}

  void run() {
    while (answer_.status == ncclSuccess && (guests_.empty() || arrived_ < guests_.size())) {
      if (auto guest = door_.next(guests_.empty() ? 1000 : 20)) welcome(std::move(*guest));
      if (answer_.status == ncclSuccess) look_for_deserters();
    }
    for (const Descriptor& socket : sockets_) answer(socket);
  }

 private:
  void welcome(Doorkeeper::Guest guest) {
    Greeting greeting;
    std::memcpy(&greeting, guest.greeting.data(), sizeof greeting);
    const int rank = greeting.card.rank, ranks = greeting.ranks;
    sockets_.push_back(std::move(guest.socket));
    if (ranks < 1 || ranks > most_ranks || rank < 0 || rank >= ranks)
      return fail(ncclInvalidArgument, "there is no rank %d of %d", rank, ranks);
    if (guests_.empty()) guests_.resize(static_cast<std::size_t>(ranks));
    if (guests_.size() != static_cast<std::size_t>(ranks))
      return fail(ncclInvalidArgument, "ranks disagree about their number: %d and %d",
                  static_cast<int>(guests_.size()), ranks);
    Card& card = guests_[static_cast<std::size_t>(rank)];
    if (card.process != 0)
      return fail(ncclInvalidArgument, "rank %d of %d joined twice", rank, ranks);
    card = greeting.card;
    ++arrived_;
  }

  // Nobody says anything before the answer: what can be read is the end of a connection.
  void look_for_deserters() {
    for (const Descriptor& socket : sockets_)
      if (wait_readable(socket, 0))
        return fail(ncclRemoteError, "a rank left before all had come (%d of %d were there)",
                    static_cast<int>(arrived_), static_cast<int>(guests_.size()));
  }

  void fail(ncclResult_t status, const char* format, int a, int b) {
    answer_.status = status;
    std::snprintf(answer_.message, sizeof answer_.message, format, a, b);
  }

  void answer(const Descriptor& socket) {
    const auto never = [] { return false; };
    if (send_all(socket, &answer_, sizeof answer_, never) && answer_.status == ncclSuccess)
      send_all(socket, guests_.data(), guests_.size() * sizeof(Card), never);
  }

  Doorkeeper door_;
  std::vector<Descriptor> sockets_;
  std::vector<Card> guests_;
  std::size_t arrived_ = 0;
  Answer answer_;
};

}  // namespace

ncclUniqueId open_meeting() {
  Invitation invitation;
  fill_random(invitation.token.data(), invitation.token.size());
  Descriptor listener = listen_on(meeting_address());
  invitation.place = local_endpoint(listener);
  // Detached: it ends when all have come, or with the process.
  std::thread([meeting = Meeting(std::move(listener), invitation.token)]() mutable {
    meeting.run();
  }).detach();
  ncclUniqueId id{};
  std::memcpy(id.internal, &invitation, sizeof invitation);
  return id;
}

std::vector<Card> join_meeting(const ncclUniqueId& id, const Card& card, int ranks,
                               const GiveUp& give_up) {
  Invitation invitation;
  const Invitation expected;
  std::memcpy(&invitation, id.internal, sizeof invitation);
  if (std::memcmp(invitation.magic, expected.magic, sizeof expected.magic) != 0)
    throw Failure(ncclInvalidArgument, "the unique id does not come from ncclGetUniqueId");
  const Descriptor socket = connect_to(invitation.place, give_up);
  const Greeting greeting{invitation.token, ranks, card};
  Answer answer;
  std::vector<Card> cards(static_cast<std::size_t>(ranks));
  if (!send_all(socket, &greeting, sizeof greeting, give_up) ||
      !receive_all(socket, &answer, sizeof answer, give_up))
    throw Failure(ncclRemoteError, "the process that made the unique id is gone");
  if (answer.status != ncclSuccess)
    throw Failure(static_cast<ncclResult_t>(answer.status),
                  std::string(answer.message, strnlen(answer.message, sizeof answer.message)));
  if (!receive_all(socket, cards.data(), cards.size() * sizeof(Card), give_up))
    throw Failure(ncclRemoteError, "the process that made the unique id is gone");
  return cards;
}

}  // namespace simgpu::nccl
