#pragma once

#include <chrono>
#include <cstdlib>
#include <functional>
#include <optional>
#include <ostream>
#include <string>

#include <gmock/gmock.h>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/thread_world.hpp"

/// @file
/// Ranks on which a contract suite runs. A suite is compiled once, whatever it is instantiated for.

namespace lockstep::testing {

/// Some way to have ranks.
struct ContractRanks {
  using Body = std::function<void(Communicator&)>;

  std::string name;
  /// Runs a body once on each rank.
  std::function<void(const Body&, const comm::CommunicatorOptions&)> run;
  /// What they need and is not here; empty: nothing, the suite runs.
  std::function<std::string()> missing = [] { return std::string(); };
  /// Whether collectives can be in captured steps; others run eagerly.
  bool captures_collectives = true;
  /// Whether an abort reaches the other ranks through the job's Session only.
  bool needs_session_to_abort = false;
  /// Whether a batch connects the ranks of its messages one after the other, before it begins.
  bool connects_in_order = false;
};

inline std::ostream& operator<<(std::ostream& out, const ContractRanks& ranks) {
  return out << ranks.name;
}

/// Threads of this process.
inline ContractRanks threads(int count) {
  return {
      .name = "Threads" + std::to_string(count),
      .run = [count](const ContractRanks::Body& body, const comm::CommunicatorOptions& options) {
        comm::run_ranks(count, body, options);
      }};
}

/// For INSTANTIATE_TEST_SUITE_P: names cases after their ranks.
inline std::string name_of_ranks(const ::testing::TestParamInfo<ContractRanks>& info) {
  return info.param.name;
}

/// The base of a contract suite.
class ContractOfRanks : public ::testing::TestWithParam<ContractRanks> {
 protected:
  void SetUp() override {
    if (const std::string what = ranks().missing(); !what.empty()) GTEST_SKIP() << what;
  }
  static const ContractRanks& ranks() { return GetParam(); }
  static void run(const ContractRanks::Body& body,
                  const comm::CommunicatorOptions& options = {.timeout = default_timeout()}) {
    ranks().run(body, options);
  }

 private:
  // Ends the wait for a rank whose test has failed, of which nobody tells without a session:
  // LOCKSTEP_TIMEOUT, else a minute.
  static std::optional<std::chrono::milliseconds> default_timeout() {
    if (std::getenv("LOCKSTEP_TIMEOUT")) return std::nullopt;
    return std::chrono::seconds(60);
  }
};

}  // namespace lockstep::testing
