// Random models, trained in random ways by some ranks: equal to one process.

#include "parallel/random_training.hpp"

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "parallel/pausing_ranks.hpp"

namespace lockstep::parallel::testing {
namespace {

// LOCKSTEP_RANDOM_TRAININGS=10000 tries more of them.
TEST(RandomTraining, EqualsOneProcess) {
  const char* const asked = std::getenv("LOCKSTEP_RANDOM_TRAININGS");
  const std::uint64_t count = asked ? std::stoull(asked) : 200;
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    const Plan plan(seed);
    const std::vector<double> alone = train_alone(plan);
    const auto [relative, absolute] = plan.tolerance();
    comm::run_ranks(plan.ranks, [&, relative = relative, absolute = absolute](Communicator& group) {
      expect_close(train_on(group, plan), alone, relative, absolute);
    });
    ASSERT_FALSE(::testing::Test::HasFailure()) << plan;
  }
}

/// What came of a training on one rank: values of parameters, or an error.
struct Outcome {
  std::vector<double> values;
  std::string error;
};

std::vector<Outcome> try_on_all(const Plan& plan) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(plan.ranks));
  const auto train = [&](Communicator& group) {
    Outcome& own = outcomes[static_cast<std::size_t>(group.rank())];
    try {
      own.values = train_on(group, plan);
    } catch (const Error& error) {
      own.error = error.what();
      throw;  // as a program would end
    }
  };
  try {
    comm::run_ranks(plan.ranks, train, {.timeout = std::chrono::seconds(60)});
  } catch (const Error& error) {
    for (Outcome& each : outcomes)  // models that were trained to different ends are found then
      if (each.error.empty()) each.error = error.what();
  }
  return outcomes;
}

/// An error without what a rank was at when it heard of it from another.
std::string cause_of(std::string error) {
  const std::size_t mismatch = error.find("the ranks of world disagree");
  if (mismatch != std::string::npos)
    return error.substr(mismatch, error.find("\n  found by ") - mismatch);
  const std::size_t rank = error.find("rank ");
  if (error.starts_with("in ") && rank != std::string::npos) error.erase(0, rank);  // of a layer
  if (!error.starts_with("rank ") || error.find(" of world, in ") > 9) return error;
  std::smatch found;
  return std::regex_search(error, found, std::regex(": (rank \\d+( failed)?: .*)")) ? found[1].str()
                                                                                    : error;
}

/// Fails unless all ranks say the same, or quote one that says it.
void expect_refused_alike(const Plan& plan, const std::vector<Outcome>& outcomes) {
  std::set<std::string> of_no_rank;
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    const std::string cause = cause_of(outcomes[r].error);
    ASSERT_FALSE(cause.empty()) << "rank " << r << " was refused nothing";
    EXPECT_EQ(cause.find("timed out"), std::string::npos) << cause;
    std::smatch found;
    if (!std::regex_search(cause, found, std::regex("^rank (\\d+)( failed)?: "))) {
      of_no_rank.insert(cause);
      continue;
    }
    const std::string& first = outcomes[std::stoul(found[1].str())].error;
    EXPECT_THAT(cause, ::testing::EndsWith(first)) << "rank " << r;
  }
  // Ranks that train alone for a while may be refused at once, each for parameters of its own: a
  // job would tell of the first that rank 0 hears of.
  if (plan.async == Plan::Async::none) {
    EXPECT_LE(of_no_rank.size(), 1u) << ::testing::PrintToString(of_no_rank);
  }
}

void expect_as_one_process(const Plan& plan, const std::vector<Outcome>& outcomes) {
  EXPECT_FALSE(plan.one_skips && plan.ranks > 1) << "nobody noticed";
  for (const Outcome& each : outcomes) {
    EXPECT_EQ(each.error, "");
    EXPECT_EQ(each.values, outcomes[0].values);
    for (const double value : each.values) ASSERT_TRUE(std::isfinite(value));
  }
  const auto [relative, absolute] = plan.tolerance();
  const auto& values = outcomes[0].values;
  if (plan.is_exact())
    expect_close(values, train_alone(plan), relative, absolute);
  else if (plan.async == Plan::Async::none && plan.hook == Plan::Hook::rounding)
    expect_close(values, train_alone(plan), 0.05, 0.05);
}

TEST(RandomTraining, WithAnyOptionsEqualsOneProcessOrIsRefusedByAllAlike) {
  const char* const asked = std::getenv("LOCKSTEP_RANDOM_TRAININGS");
  const std::uint64_t count = asked ? std::stoull(asked) : 200;
  std::uint64_t refused = 0;
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    const Plan plan = Plan::with_any_options(seed);
    const std::vector<Outcome> outcomes = try_on_all(plan);
    const bool is_refused =
        std::ranges::any_of(outcomes, [](const Outcome& each) { return !each.error.empty(); });
    refused += is_refused;
    is_refused ? expect_refused_alike(plan, outcomes) : expect_as_one_process(plan, outcomes);
    ASSERT_FALSE(::testing::Test::HasFailure()) << plan << "\n" << outcomes[0].error;
  }
  EXPECT_GT(refused, count / 10);
  EXPECT_LT(refused, count * 2 / 3);
}

// --- threads that pause, and may throw -----------------------------------------------------------

struct Planned : Error {
  Planned() : Error("planned") {}
};

/// Which rank throws, if any, and at which of its interruptions.
struct PlannedFailure {
  explicit PlannedFailure(const Plan& plan) {
    std::mt19937_64 random(plan.seed * 17 + 5);
    if (random() % 4 != 0) return;
    rank = static_cast<int>(random() % static_cast<unsigned>(plan.ranks));
    // Each step has one; three where this rank has data, and its program runs it.
    const bool has_more = !plan.some_lack_data && !plan.is_captured;
    at = random() % (static_cast<unsigned>(plan.steps) * (has_more ? 3 : 1));
  }
  int rank = -1;
  std::uint64_t at = 0;
};

std::vector<Outcome> try_with_pauses(const Plan& plan, const PlannedFailure& failure,
                                     std::uint64_t seed) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(plan.ranks));
  const auto errors = lockstep::testing::run_pausing(
      plan.ranks, seed, [&](Communicator& group, lockstep::testing::Pauses& pause) {
        std::uint64_t interruptions = 0;
        const auto may_throw = [&] {
          if (group.rank() == failure.rank && interruptions++ == failure.at) throw Planned();
        };
        const Interruptions both{.before_step =
                                     [&] {
                                       pause.before_step();
                                       may_throw();
                                     },
                                 .within_step =
                                     [&] {
                                       pause();
                                       may_throw();
                                     }};
        outcomes[static_cast<std::size_t>(group.rank())].values = train_on(group, plan, both);
      });
  for (std::size_t rank = 0; rank < errors.size(); ++rank) outcomes[rank].error = errors[rank];
  return outcomes;
}

/// The bits of ranks that do not pause, or the planned failure on all of them.
void expect_as_without_pauses(const Plan& plan, std::uint64_t seed) {
  const PlannedFailure failure(plan);
  const std::vector<Outcome> outcomes = try_with_pauses(plan, failure, seed);
  if (failure.rank >= 0) {
    for (const Outcome& each : outcomes) EXPECT_THAT(each.error, ::testing::HasSubstr("planned"));
    return;
  }
  expect_as_one_process(plan, outcomes);
  EXPECT_EQ(try_on_all(plan)[0].values, outcomes[0].values);
}

void train_with_pauses(std::uint64_t first, std::uint64_t otherwise) {
  const char* const asked = std::getenv("LOCKSTEP_RANDOM_TRAININGS");
  const std::uint64_t count = asked ? std::stoull(asked) : otherwise;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Plan plan(seed, 2 + static_cast<int>(seed % 4));
    expect_as_without_pauses(plan, seed);
    ASSERT_FALSE(::testing::Test::HasFailure()) << plan;
  }
}

TEST(RandomTraining, OfThreadsThatPauseEqualsOneProcess) { train_with_pauses(1, 60); }

TEST(RandomTraining, SlowOfThreadsThatPauseEqualsOneProcess) { train_with_pauses(10'000, 10'000); }

}  // namespace
}  // namespace lockstep::parallel::testing
