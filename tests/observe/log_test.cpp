#include "lockstep/observe/log.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

class Log : public ::testing::Test {
 protected:
  Log() {
    set_log_sink([this](std::string_view line) { lines_.emplace_back(line); });
  }
  ~Log() override {
    set_log_sink(nullptr);
    set_log_rank(0, 1);
    set_log_level(LogLevel::warning);
  }
  std::vector<std::string> lines_;
};

TEST_F(Log, DropsWhatIsBelowTheLevelWithoutEvaluatingIt) {
  set_log_level(LogLevel::warning);
  int evaluated = 0;
  LOCKSTEP_LOG(info, "count ", ++evaluated);
  LOCKSTEP_LOG(error, "count ", ++evaluated);
  EXPECT_EQ(evaluated, 1);
  EXPECT_EQ(lines_, (std::vector<std::string>{"error: count 1\n"}));
}

TEST_F(Log, NamesTheRankOnlyInJobsOfSeveral) {
  set_log_rank(2, 4);
  LOCKSTEP_LOG(warning, "slow");
  set_log_rank(0, 1);
  LOCKSTEP_LOG(warning, "slow");
  EXPECT_EQ(lines_, (std::vector<std::string>{"[rank 2] warning: slow\n", "warning: slow\n"}));
}

TEST_F(Log, OffSilencesErrors) {
  set_log_level(LogLevel::off);
  LOCKSTEP_LOG(error, "unheard");
  EXPECT_TRUE(lines_.empty());
}

}  // namespace
}  // namespace lockstep
