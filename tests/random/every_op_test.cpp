#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "functional/op_list.hpp"
#include "lockstep/observe/trace_range.hpp"
#include "support/described_ops.hpp"

// Whether every op has random cases. The test of that, `random_cases_of_every_op`, runs this
// program with LOCKSTEP_RANDOM_EVERY_OP set: whatever cases run then must have called each op
// themselves.

namespace lockstep::testing {
namespace {

/// Without random cases, and why.
constexpr std::string_view exempt[] = {
    // What they give is random: RandomContract, Multinomial, Bernoulli, RandInt, RandPerm.
    "bernoulli", "dropout", "dropout2d", "multinomial", "normal_", "randint", "randperm",
    "uniform_",
    // Kernels behind names of other ops, which have cases: div and pow.
    "div_scalar", "pow_scalar"};

/// The names of ops that were called by other code than ops.
class CalledOps final : public TraceSink {
 public:
  void begin(std::string_view name, TracePhase phase) noexcept override {
    if (depth_++ > 0 || phase != TracePhase::forward) return;
    const std::lock_guard lock(mutex_);
    names_.emplace(name);
  }
  void end() noexcept override { --depth_; }
  bool contains(std::string_view name) const { return names_.contains(std::string(name)); }

 private:
  static inline thread_local int depth_ = 0;
  std::mutex mutex_;
  std::set<std::string> names_;
};

class EveryOp final : public ::testing::Environment {
 public:
  void SetUp() override { add_trace_sink(called_); }
  void TearDown() override {
    remove_trace_sink(called_);
    const auto expect = [&](std::string_view op) {
      if (std::ranges::find(exempt, op) != std::end(exempt)) return;
      EXPECT_TRUE(called_.contains(op))
          << op << " has no random case: add one to tests/random, or its name and the reason to "
          << "tests/random/every_op_test.cpp";
    };
    for (const auto& op : unary_ops) expect(op.name);
    for (const auto& op : binary_ops) expect(op.name);
    for (const auto& op : compare_ops) expect(op.name);
    for (const auto& op : described_ops()) expect(op);
  }

 private:
  CalledOps called_;
};

[[maybe_unused]] const auto* const every_op = std::getenv("LOCKSTEP_RANDOM_EVERY_OP")
                                                  ? ::testing::AddGlobalTestEnvironment(new EveryOp)
                                                  : nullptr;

}  // namespace
}  // namespace lockstep::testing
