#include "comm/thread/thread_transport.hpp"

#include <algorithm>
#include <cstring>

#include "lockstep/comm/errors.hpp"

namespace lockstep::comm {
namespace {

// So often a thread that waits looks at the deadline, which may come nearer meanwhile.
constexpr auto longest_wait = std::chrono::milliseconds(50);

}  // namespace

ThreadHub::ThreadHub(int size)
    : size_(size),
      channels_(static_cast<std::size_t>(size) * static_cast<std::size_t>(size)),
      doorbells_(static_cast<std::size_t>(size)) {}

ThreadHub::Channel& ThreadHub::channel(int from, int to) {
  return channels_[static_cast<std::size_t>(from * size_ + to)];
}

// The sender has put its offer into the channel, the receiver says that it waits before it looks
// there: one of the two sees the other.
void ThreadHub::ring(int rank) {
  Doorbell& bell = doorbell(rank);
  if (!bell.is_awaited.load()) return;
  const std::lock_guard lock(bell.mutex);
  ++bell.rings;
  bell.rung.notify_all();
}

std::shared_ptr<ThreadHub> ThreadHub::subgroup(std::uint64_t split, int color, int size) {
  const std::lock_guard lock(mutex_);
  std::erase_if(subgroups_, [](const auto& each) { return each.second.expired(); });
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
  for (int rank = 0; rank < size_; ++rank) ring(rank);
  for (const auto& hub : subgroups) hub->abort(reason);
}

const std::string* ThreadHub::abort_reason() const {
  const std::lock_guard lock(mutex_);
  return aborted_ ? &reason_ : nullptr;
}

ThreadTransport::ThreadTransport(std::shared_ptr<ThreadHub> hub, int rank)
    : hub_(std::move(hub)), rank_(rank) {}

void ThreadTransport::check() {
  if (const std::string* reason = hub_->abort_reason()) throw PeerFailure(*reason);
}

template <class Condition>
void ThreadTransport::wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                           std::span<const int> peers, const host::WaitOptions& options,
                           Condition condition) {
  while (!condition()) {
    lock.unlock();  // a wait that is long is told to the others, who may abort
    check();
    const bool is_over = options.deadline->is_over(peers);
    lock.lock();
    if (condition()) return;
    if (is_over) throw host::TransferTimeout{{peers.begin(), peers.end()}};
    changed.wait_for(lock, longest_wait);
  }
}

// Copies the oldest offer of a channel, whose mutex is held.
void ThreadTransport::take_first(ThreadHub::Channel& channel, host::Incoming& incoming) {
  ThreadHub::Offer& offer = *channel.offers.front();
  LOCKSTEP_CHECK(offer.data.size() <= incoming.room.size(), CorruptData, "rank ", incoming.peer,
                 " sent ", offer.data.size(), " bytes where at most ", incoming.room.size(),
                 " were due");
  std::memcpy(incoming.room.data(), offer.data.data(), offer.data.size());
  incoming.received = offer.data.size();
  offer.taken = true;
  channel.offers.erase(channel.offers.begin());
  channel.changed.notify_all();
}

void ThreadTransport::take(host::Incoming& incoming, const host::WaitOptions& options) {
  ThreadHub::Channel& channel = hub_->channel(incoming.peer, rank_);
  std::unique_lock lock(channel.mutex);
  wait(channel.changed, lock, {&incoming.peer, 1}, options,
       [&] { return !channel.offers.empty(); });
  take_first(channel, incoming);
}

// Offers all messages, receives, and waits until the offers are taken.
template <class Receive>
void ThreadTransport::send_while(std::span<const host::Outgoing> out,
                                 const host::WaitOptions& options, Receive receive) {
  std::vector<ThreadHub::Offer> offers(out.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    offers[i].data = out[i].data;
    ThreadHub::Channel& channel = hub_->channel(rank_, out[i].peer);
    {
      const std::lock_guard lock(channel.mutex);
      channel.offers.push_back(&offers[i]);
      channel.changed.notify_all();
    }
    hub_->ring(out[i].peer);
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
    receive();
    for (std::size_t i = 0; i < out.size(); ++i) {
      ThreadHub::Channel& channel = hub_->channel(rank_, out[i].peer);
      std::unique_lock lock(channel.mutex);
      wait(channel.changed, lock, {&out[i].peer, 1}, options, [&] { return offers[i].taken; });
    }
  } catch (...) {
    withdraw();
    throw;
  }
}

void ThreadTransport::transfer(std::span<const host::Outgoing> out, std::span<host::Incoming> in,
                               const host::WaitOptions& options) {
  send_while(out, options, [&] {
    for (host::Incoming& incoming : in) take(incoming, options);
  });
}

// Whoever comes first is served first: a peer may be waiting for one that waits for this rank.
void ThreadTransport::exchange(std::span<const host::Outgoing> out, std::span<host::Incoming> in,
                               const host::WaitOptions& options, host::Arrived arrived) {
  ThreadHub::Doorbell& bell = hub_->doorbell(rank_);
  std::vector<host::Incoming*> pending;
  for (host::Incoming& incoming : in) pending.push_back(&incoming);
  send_while(out, options, [&] {
    bell.is_awaited.store(true);
    while (!pending.empty()) {
      std::unique_lock lock(bell.mutex);
      const std::uint64_t rings = bell.rings;
      lock.unlock();
      if (take_what_came(pending, arrived)) continue;
      std::vector<int> peers;
      for (const host::Incoming* incoming : pending) peers.push_back(incoming->peer);
      lock.lock();
      wait(bell.rung, lock, peers, options, [&] { return bell.rings != rings; });
    }
    bell.is_awaited.store(false);
  });
}

bool ThreadTransport::take_what_came(std::vector<host::Incoming*>& pending, host::Arrived arrived) {
  bool took = false;
  for (host::Incoming*& incoming : pending) {
    ThreadHub::Channel& channel = hub_->channel(incoming->peer, rank_);
    {
      const std::lock_guard lock(channel.mutex);
      if (channel.offers.empty()) continue;
      take_first(channel, *incoming);
    }
    took = true;
    if (!arrived(*incoming)) incoming = nullptr;
  }
  std::erase(pending, nullptr);
  return took;
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
