#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/host/transport.hpp"

namespace lockstep::comm {

/// Where the threads of one group meet: a channel for each ordered pair of ranks.
class ThreadHub {
 public:
  explicit ThreadHub(int size);

  /// A message offered by its sender, who waits until it is taken: the receiver copies straight
  /// from the sender's memory.
  struct Offer {
    std::span<const std::byte> data;
    bool taken = false;
  };
  /// Messages from one rank to another, oldest first.
  struct Channel {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<Offer*> offers;  // no memory while it is empty: most channels are never used
  };

  /// Wakes a rank that waits for whoever sends first.
  struct Doorbell {
    std::atomic<bool> is_awaited{false};
    std::mutex mutex;
    std::condition_variable rung;
    std::uint64_t rings = 0;
  };

  int size() const { return size_; }
  Channel& channel(int from, int to);
  Doorbell& doorbell(int rank) { return doorbells_[static_cast<std::size_t>(rank)]; }
  /// Tells a rank that there is news in one of its channels.
  void ring(int rank);
  /// The hub of a sub-group; the first member that asks makes it.
  std::shared_ptr<ThreadHub> subgroup(std::uint64_t split, int color, int size);
  void abort(const std::string& reason);
  /// The reason of an abort, or null. Valid for as long as the hub.
  const std::string* abort_reason() const;

 private:
  int size_;
  std::vector<Channel> channels_;
  std::vector<Doorbell> doorbells_;
  mutable std::mutex mutex_;
  bool aborted_ = false;
  std::string reason_;
  std::map<std::pair<std::uint64_t, int>, std::weak_ptr<ThreadHub>> subgroups_;
};

/// One thread's end of a hub.
class ThreadTransport final : public host::Transport {
 public:
  ThreadTransport(std::shared_ptr<ThreadHub> hub, int rank);

  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  std::string_view backend() const override { return "thread"; }
  void transfer(std::span<const host::Outgoing> out, std::span<host::Incoming> in,
                const host::WaitOptions& options) override;
  void exchange(std::span<const host::Outgoing> out, std::span<host::Incoming> in,
                const host::WaitOptions& options, host::Arrived arrived) override;
  std::unique_ptr<host::Transport> split(int color, const std::vector<int>& members,
                                         host::GatherBytes all_gather) override;
  void abort(const std::string& reason) noexcept override { hub_->abort(reason); }
  void check() override;

 private:
  template <class Receive>
  void send_while(std::span<const host::Outgoing> out, const host::WaitOptions& options,
                  Receive receive);
  void take(host::Incoming& incoming, const host::WaitOptions& options);
  void take_first(ThreadHub::Channel& channel, host::Incoming& incoming);
  bool take_what_came(std::vector<host::Incoming*>& pending, host::Arrived arrived);
  template <class Condition>
  void wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
            std::span<const int> peers, const host::WaitOptions& options, Condition condition);

  std::shared_ptr<ThreadHub> hub_;
  int rank_;
  std::uint64_t splits_ = 0;
};

}  // namespace lockstep::comm
