#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep_run/host_link.hpp"

namespace run {

struct HostPoolOptions {
  std::vector<Host> hosts;
  std::vector<std::string> launcher;  ///< words that start a command on a host: ssh
  /// How soon a lost host is tried again; each time after twice as long, up to 10 minutes; 0:
  /// never.
  std::chrono::seconds probe{10};
};

/// The hosts of a run: those that can be reached, and those that are tried again.
class HostPool {
 public:
  explicit HostPool(const HostPoolOptions& options);
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;
  ~HostPool();

  std::size_t size() const { return places_.size(); }
  HostLink& link(std::size_t host) { return places_[host].link; }
  const HostLink& link(std::size_t host) const { return places_[host].link; }
  /// How many can be reached, and how many ranks those take.
  int hosts_up() const;
  int slots_up() const;
  /// Whether an agent is started for the first time since its host was reached last.
  bool is_one_coming() const;
  /// Why the others cannot be: "; b: its agent has ended".
  std::string failures() const;
  /// The hosts, without slots where they cannot be reached.
  std::vector<Host> reachable() const;

  /// Starts agents where it is time to. @return why one could not be: it is tried again.
  std::vector<std::string> try_lost();
  /// Waits until one has said something, or another descriptor has.
  void wait(int other, std::chrono::milliseconds limit) const;
  /// To be called at least every second.
  void keep_alive();
  /// Instead, while nothing is read of what they say.
  void say_alive();

 private:
  using Clock = HostLink::Clock;
  struct Place {
    HostLink link;
    int attempts = 0;  // since it was reached for as long as it was waited for
    Clock::time_point next_attempt = {};
  };

  std::chrono::seconds probe_;
  std::vector<Place> places_;
  Clock::time_point last_alive_ = Clock::now();
};

}  // namespace run
