#include "nccl/call_exchange.hpp"

#include <cstring>
#include <string>
#include <thread>

#include <poll.h>

#include "nccl/failure.hpp"

namespace simgpu::nccl {
namespace {

constexpr std::int64_t look_period = 2'000'000;  // ns

std::int64_t now() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace

CallExchange::CallExchange(int rank, Segment own, std::vector<Peer> peers)
    : rank_(rank), own_(std::move(own)), peers_(std::move(peers)) {
  std::vector<Replicator::Remote> remotes;
  for (std::size_t r = 0; r < peers_.size(); ++r)
    if (peers_[r].socket)
      remotes.push_back({static_cast<int>(r), std::move(peers_[r].socket), &peers_[r].segment});
  if (!remotes.empty())
    replicator_ = std::make_unique<Replicator>(size(), own_, std::move(remotes));
}

CallExchange::~CallExchange() = default;

const Segment& CallExchange::segment_of(int rank) const {
  return rank == rank_ ? own_ : peers_[static_cast<std::size_t>(rank)].segment;
}

std::uint32_t CallExchange::readers_of(Channel channel) const {
  return channel >= first_of_pairs ? 1 : static_cast<std::uint32_t>(size() - 1);
}

bool CallExchange::publish(Channel channel, std::uint64_t number, const Signature& signature,
                           std::span<const std::byte> data) {
  const std::uint32_t readers = readers_of(channel);
  if (readers == 0) return true;
  const std::lock_guard lock(publish_mutex_);
  CallSlot& slot = own_.slot(channel, number);
  if (slot.readers.load(std::memory_order_acquire) != 0) return false;
  slot.offset = own_.allocate(data.size(), slot);
  slot.bytes = data.size();
  slot.signature = signature;
  if (!data.empty()) std::memcpy(own_.data(slot.offset), data.data(), data.size());
  slot.readers.store(readers, std::memory_order_relaxed);
  slot.published.store(number + 1, std::memory_order_release);
  if (replicator_) replicator_->send_call(channel, number, slot);
  return true;
}

bool CallExchange::is_taken(Channel channel, std::uint64_t number) const {
  return own_.slot(channel, number).readers.load(std::memory_order_acquire) == 0;
}

std::optional<CallExchange::Seen> CallExchange::find(int from, Channel channel,
                                                     std::uint64_t number) const {
  const Segment& segment = segment_of(from);
  const CallSlot& slot = segment.slot(channel, number);
  if (slot.published.load(std::memory_order_acquire) != number + 1) return std::nullopt;
  return Seen{&slot.signature, segment.data(slot.offset), slot.bytes};
}

void CallExchange::release(int from, Channel channel, std::uint64_t number) {
  segment_of(from).slot(channel, number).readers.fetch_sub(1, std::memory_order_release);
  if (replicator_) replicator_->send_release(from, channel, number);
}

void CallExchange::announce(Presence presence) {
  own_.presence().store(presence, std::memory_order_release);
  if (replicator_) replicator_->send_presence(presence);
}

Presence CallExchange::presence_of(int rank) const {
  return segment_of(rank).presence().load(std::memory_order_acquire);
}

bool CallExchange::is_captured_by_neighbours(std::uint64_t launches) const {
  for (int rank = 0; rank < size(); ++rank) {
    const bool is_remote = replicator_ && replicator_->reaches(rank);
    if (!is_remote && segment_of(rank).captured().load(std::memory_order_acquire) < launches)
      return false;
  }
  return true;
}

// The order matters: a process that leaves announces it before it ends.
bool CallExchange::has_ended(int rank) const {
  const Peer& peer = peers_[static_cast<std::size_t>(rank)];
  bool has_ended = replicator_ && replicator_->is_broken(rank);
  if (peer.process) {
    pollfd entry{peer.process.get(), POLLIN, 0};
    has_ended = ::poll(&entry, 1, 0) > 0;
  }
  const Presence presence = has_ended ? presence_of(rank) : Presence::left;
  return presence != Presence::left && presence != Presence::aborted;
}

int CallExchange::lost_rank() {
  const std::int64_t time = now();
  std::int64_t due = next_look_.load(std::memory_order_relaxed);
  if (lost_.load() >= 0 || time < due ||
      !next_look_.compare_exchange_strong(due, time + look_period))
    return lost_.load();
  for (int rank = 0; rank < size(); ++rank)
    if (has_ended(rank)) {
      lost_.store(rank);
      break;
    }
  return lost_.load();
}

void CallExchange::wait_until_ready(const std::function<bool()>& give_up) {
  for (int rank = 0; rank < size(); ++rank)
    while (presence_of(rank) == Presence::joining) {
      if (give_up()) throw Failure(ncclInvalidUsage, "the communicator was aborted");
      if (const int lost = lost_rank(); lost >= 0)
        throw Failure(ncclRemoteError,
                      "rank " + std::to_string(lost) + " ended while the communicator was made");
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
}

}  // namespace simgpu::nccl
