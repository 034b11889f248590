#include <bit>
#include <optional>

#include "nccl/communicator.hpp"
#include "nccl/failure.hpp"

namespace simgpu::nccl {
namespace {

enum Direction : unsigned { sending = 1, receiving = 2 };

// As on an H100 over sockets: two channels a direction.
constexpr std::uint64_t bytes_of_direction = 512;

unsigned directions_of(const Signature& call, int peer) {
  if (call.function == Function::all_to_all) return sending | receiving;
  if (!is_point_to_point(call.function) || call.root != peer) return 0;
  return call.function == Function::send ? sending : receiving;
}

}  // namespace

void Communicator::connect(std::span<const Arguments> calls) {
  if (size() % 2 != 0) return;  // one that is equally far both ways
  const int peer = (rank() + size() / 2) % size();
  unsigned needed = 0;
  for (const Arguments& call : calls) needed |= directions_of(call.signature, peer);
  needed &= ~connected_;
  if (needed == 0) return;
  connected_ |= needed;
  connecting_ = true;
  const auto count = static_cast<std::uint64_t>(std::popcount(needed));
  start([this, peer, count, number = connections_++] { exchange_directions(peer, count, number); });
}

void Communicator::exchange_directions(int peer, std::uint64_t count, std::uint64_t number) {
  Signature own;
  own.root = peer;
  own.count = count;
  if (!wait_until([&] { return exchange_->publish(connections, number, own, {}); })) return;
  std::optional<CallExchange::Seen> seen;
  if (!wait_until([&] { return (seen = exchange_->find(peer, connections, number)).has_value(); }))
    return;
  const std::uint64_t theirs = seen->signature->count;
  exchange_->release(peer, connections, number);
  if (theirs > count)
    throw Failure(ncclInternalError,
                  "Message truncated : received " + std::to_string(theirs * bytes_of_direction) +
                      " bytes instead of " + std::to_string(count * bytes_of_direction));
  if (theirs == count)
    connecting_.store(false, std::memory_order_release);
  else
    wait_until([] { return false; });
}

}  // namespace simgpu::nccl
