#include "comm/thread/thread_transport.hpp"

#include <algorithm>
#include <cstring>

#include "lockstep/comm/errors.hpp"

namespace lockstep::comm {

ThreadHub::ThreadHub(int size)
    : size_(size), channels_(static_cast<std::size_t>(size) * static_cast<std::size_t>(size)) {}

ThreadHub::Channel& ThreadHub::channel(int from, int to) {
  return channels_[static_cast<std::size_t>(from * size_ + to)];
}

std::shared_ptr<ThreadHub> ThreadHub::subgroup(std::uint64_t split, int color, int size) {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<ThreadHub>& entry = subgroups_[{split, color}];
  std::shared_ptr<ThreadHub> hub = entry.lock();
  if (!hub) entry = hub = std::make_shared<ThreadHub>(size);
  return hub;
}

void ThreadHub::abort(const std::string& reason) {
  std::vector<std::shared_ptr<ThreadHub>> subgroups;
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    aborted_ = true;
    reason_ = reason;
    for (const auto& [_, weak] : subgroups_)
      if (auto hub = weak.lock()) subgroups.push_back(std::move(hub));
  }
  for (Channel& channel : channels_) {
    const std::lock_guard lock(channel.mutex);
    channel.changed.notify_all();
  }
  for (const auto& hub : subgroups) hub->abort(reason);
}

const std::string* ThreadHub::abort_reason() const {
  const std::lock_guard lock(mutex_);
  return aborted_ ? &reason_ : nullptr;
}

ThreadTransport::ThreadTransport(std::shared_ptr<ThreadHub> hub, int rank)
    : hub_(std::move(hub)), rank_(rank) {}

template <class Condition>
void ThreadTransport::wait(ThreadHub::Channel& channel, std::unique_lock<std::mutex>& lock,
                           int peer, const host::Patience& patience, Condition condition) {
  while (!condition()) {
    if (const std::string* reason = hub_->abort_reason()) throw PeerFailure(*reason);
    // system_clock waits are what ThreadSanitizer understands; the limit is checked on our clock.
    const auto now = host::Clock::now();
    if (now >= patience.deadline) throw host::TransferTimeout{{peer}};
    const auto left =
        std::min<host::Clock::duration>(patience.deadline - now, std::chrono::seconds(1));
    channel.changed.wait_until(lock, std::chrono::system_clock::now() + left);
  }
}

void ThreadTransport::take(host::Incoming& incoming, const host::Patience& patience) {
  ThreadHub::Channel& channel = hub_->channel(incoming.peer, rank_);
  std::unique_lock lock(channel.mutex);
  wait(channel, lock, incoming.peer, patience, [&] { return !channel.offers.empty(); });
  ThreadHub::Offer& offer = *channel.offers.front();
  LOCKSTEP_CHECK(offer.data.size() <= incoming.room.size(), CorruptData, "rank ", incoming.peer,
                 " sent ", offer.data.size(), " bytes where at most ", incoming.room.size(),
                 " were due");
  std::memcpy(incoming.room.data(), offer.data.data(), offer.data.size());
  incoming.received = offer.data.size();
  offer.taken = true;
  channel.offers.pop_front();
  channel.changed.notify_all();
}

void ThreadTransport::transfer(std::span<const host::Outgoing> out, std::span<host::Incoming> in,
                               const host::Patience& patience) {
  std::vector<ThreadHub::Offer> offers(out.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    offers[i].data = out[i].data;
    ThreadHub::Channel& channel = hub_->channel(rank_, out[i].peer);
    const std::lock_guard lock(channel.mutex);
    channel.offers.push_back(&offers[i]);
    channel.changed.notify_all();
  }
  // Offers point into this frame: whatever happens, none may stay behind.
  const auto withdraw = [&] {
    for (std::size_t i = 0; i < out.size(); ++i) {
      ThreadHub::Channel& channel = hub_->channel(rank_, out[i].peer);
      const std::lock_guard lock(channel.mutex);
      std::erase(channel.offers, &offers[i]);
    }
  };
  try {
    for (host::Incoming& incoming : in) take(incoming, patience);
    for (std::size_t i = 0; i < out.size(); ++i) {
      ThreadHub::Channel& channel = hub_->channel(rank_, out[i].peer);
      std::unique_lock lock(channel.mutex);
      wait(channel, lock, out[i].peer, patience, [&] { return offers[i].taken; });
    }
  } catch (...) {
    withdraw();
    throw;
  }
}

std::unique_ptr<host::Transport> ThreadTransport::split(int color, const std::vector<int>& members,
                                                        host::GatherBytes all_gather) {
  const std::uint64_t split = splits_++;
  std::shared_ptr<ThreadHub> hub;
  if (!members.empty()) hub = hub_->subgroup(split, color, static_cast<int>(members.size()));
  all_gather("");  // the hub keeps weak references: hold ours until every member has its own
  if (!hub) return nullptr;
  const auto place = std::ranges::find(members, rank_) - members.begin();
  return std::make_unique<ThreadTransport>(std::move(hub), static_cast<int>(place));
}

}  // namespace lockstep::comm
