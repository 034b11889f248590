#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/host/host_backend.hpp"
#include "lockstep/comm/communicator.hpp"

/// @file
/// A link with a latency and a bandwidth, emulated on one host.

namespace lockstep::comm {

/// What each operation takes longer than it does.
struct LinkSpeed {
  double latency = 0;  ///< seconds
  double seconds_per_byte = 0;
};

/// Runs operations over another communicator's backend, and sleeps for what the link would take.
class SlowLinkExecutor final : public host::Executor {
 public:
  /// @param link a backend that lives longer.
  SlowLinkExecutor(CommunicatorBackend& link, LinkSpeed speed) : link_(link), speed_(speed) {}

  int rank() const override { return link_.rank(); }
  int size() const override { return link_.size(); }
  std::string_view kind() const override { return link_.kind(); }
  void run(std::span<const Operation> operations, const host::Deadline&) override {
    std::vector<Operation> copies(operations.begin(), operations.end());
    double seconds = 0;
    for (const Operation& each : copies)
      seconds += speed_.latency + static_cast<double>(each.count) *
                                      static_cast<double>(size_of(each.dtype)) *
                                      speed_.seconds_per_byte;
    link_.submit(copies).synchronize();
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
  void abort(const std::string& reason) noexcept override { link_.abort(reason); }
  std::unique_ptr<host::Executor> split(const SplitPlan&) override { return nullptr; }

 private:
  CommunicatorBackend& link_;
  LinkSpeed speed_;
};

/// The group of a communicator on hosts, which lives longer, over such a link.
inline CommunicatorPtr over_slow_link(Communicator& group, LinkSpeed speed) {
  CommunicatorBackend& link = group.implementation();
  return make_intrusive<Communicator>(std::make_unique<host::HostBackend>(
      std::make_unique<SlowLinkExecutor>(link, speed), "slow link", link.options()));
}

}  // namespace lockstep::comm
