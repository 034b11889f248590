#include "nccl/connection.hpp"

#include <bit>
#include <optional>
#include <string>

#include "nccl/communicator.hpp"
#include "nccl/failure.hpp"

namespace simgpu::nccl {
namespace {

// As on an H100 over sockets: two channels a direction.
constexpr std::uint64_t bytes_of_direction = 512;

unsigned directions_with(const Signature& call, int rank, int peer) {
  const unsigned from_root = call.root == rank ? sending : call.root == peer ? receiving : 0u;
  const unsigned to_root = call.root == rank ? receiving : call.root == peer ? sending : 0u;
  switch (call.function) {
    case Function::send: return call.root == peer ? sending : 0u;
    case Function::receive: return call.root == peer ? receiving : 0u;
    case Function::all_to_all: return call.count > 0 ? sending | receiving : 0u;
    case Function::gather: return call.count > 0 ? to_root : 0u;
    case Function::scatter: return call.count > 0 ? from_root : 0u;
    default: return 0;
  }
}

class Setup {
 public:
  Setup(Communicator& communicator, const Directions& needed, bool has_met_half)
      : communicator_(communicator), needed_(needed), number_with_half_(has_met_half ? 1 : 0) {}

  // Once all peers have said what they connect, all say that they have.
  bool run() { return exchange_all(requests) && exchange_all(connected); }

 private:
  bool exchange_all(Channel (*channel)(int)) {
    const int rank = communicator_.rank(), size = communicator_.size();
    for (int distance = 1; distance < size; ++distance) {
      const int from = (rank - distance + size) % size, to = (rank + distance) % size;
      if (!(from == to ? exchange_with_half(channel, to) : exchange(channel, from, to)))
        return false;
    }
    return true;
  }

  // Numbers of messages: 0 about what their sender will send, 1 about what it will receive.
  bool exchange(Channel (*channel)(int), int from, int to) {
    const bool receives = needs(from, receiving), sends = needs(to, sending);
    return (!receives || tell(channel, from, 1, 1)) && (!sends || tell(channel, to, 0, 1)) &&
           (!sends || hear(channel, to, 1)) && (!receives || hear(channel, from, 0));
  }

  bool exchange_with_half(Channel (*channel)(int), int peer) {
    const auto count =
        static_cast<std::uint64_t>(std::popcount(needed_[static_cast<std::size_t>(peer)]));
    if (count == 0) return true;
    if (!tell(channel, peer, number_with_half_, count)) return false;
    const auto theirs = hear(channel, peer, number_with_half_);
    if (!theirs) return false;
    if (*theirs > count)
      throw Failure(ncclInternalError,
                    "Message truncated : received " + std::to_string(*theirs * bytes_of_direction) +
                        " bytes instead of " + std::to_string(count * bytes_of_direction));
    // A shorter one leaves a direction without what was to be told of it.
    return *theirs == count || communicator_.wait_until([] { return false; });
  }

  bool needs(int peer, Direction direction) const {
    return (needed_[static_cast<std::size_t>(peer)] & direction) != 0;
  }

  bool tell(Channel (*channel)(int), int peer, std::uint64_t number, std::uint64_t count) {
    Signature message;
    message.root = peer;
    message.count = count;
    return communicator_.wait_until(
        [&] { return communicator_.exchange()->publish(channel(peer), number, message, {}); });
  }

  std::optional<std::uint64_t> hear(Channel (*channel)(int), int peer, std::uint64_t number) {
    CallExchange& exchange = *communicator_.exchange();
    const Channel own = channel(communicator_.rank());
    std::optional<CallExchange::Seen> seen;
    if (!communicator_.wait_until([&] {
          seen = exchange.find(peer, own, number);
          return seen.has_value();
        }))
      return std::nullopt;
    const std::uint64_t count = seen->signature->count;
    exchange.release(peer, own, number);
    return count;
  }

  Communicator& communicator_;
  const Directions& needed_;
  const std::uint64_t number_with_half_;
};

}  // namespace

Directions directions_of(std::span<const Arguments> calls, int rank, int size) {
  Directions directions(static_cast<std::size_t>(size));
  for (const Arguments& call : calls)
    for (int peer = 0; peer < size; ++peer)
      if (peer != rank)
        directions[static_cast<std::size_t>(peer)] |= directions_with(call.signature, rank, peer);
  return directions;
}

bool connect(Communicator& communicator, const Directions& needed, bool has_met_half) {
  return Setup(communicator, needed, has_met_half).run();
}

}  // namespace simgpu::nccl
