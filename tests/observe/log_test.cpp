#include "lockstep/observe/log.hpp"

#include <chrono>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

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

TEST_F(Log, SaysSoWhereThereIsNoMemoryForItsParts) {
  const auto part = [this]() -> std::string {
    if (lines_.empty()) throw std::bad_alloc();
    return "part";
  };
  LOCKSTEP_LOG(error, "of a ", part());
  LOCKSTEP_LOG(error, "of a ", part());
  EXPECT_EQ(lines_, (std::vector<std::string>{"error: there is no memory for this message\n",
                                              "error: of a part\n"}));
}

TEST(LogLevelDeathTest, OfTheEnvironmentThatIsNoneIsTold) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto log_at_level = [](const char* level) {
    setenv("LOCKSTEP_LOG_LEVEL", level, 1);
    LOCKSTEP_LOG(info, "said");
    std::exit(0);
  };
  EXPECT_EXIT(log_at_level("loud"), ::testing::ExitedWithCode(0), "LOCKSTEP_LOG_LEVEL is \"loud\"");
  EXPECT_EXIT(log_at_level("info"), ::testing::ExitedWithCode(0), "^info: said\n$");
}

TEST_F(Log, NamesTheRankOnlyInJobsOfSeveral) {
  set_log_rank(2, 4);
  LOCKSTEP_LOG(warning, "slow");
  set_log_rank(0, 1);
  LOCKSTEP_LOG(warning, "slow");
  EXPECT_EQ(lines_, (std::vector<std::string>{"[rank 2] warning: slow\n", "warning: slow\n"}));
}

TEST_F(Log, OfASinkItselfGoesPastIt) {
  set_log_sink([this](std::string_view line) {
    lines_.emplace_back(line);
    LOCKSTEP_LOG(warning, "a line of the sink's own");
  });
  ::testing::internal::CaptureStderr();
  LOCKSTEP_LOG(error, "first");
  LOCKSTEP_LOG(error, "second");
  EXPECT_EQ(lines_, (std::vector<std::string>{"error: first\n", "error: second\n"}));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "warning: a line of the sink's own\nwarning: a line of the sink's own\n");
}

TEST_F(Log, OfASinkThatSetsAnotherGoesOnToThat) {
  set_log_sink([this](std::string_view line) {
    set_log_rank(1, 2);
    set_log_sink([this](std::string_view next) { lines_.push_back("later " + std::string(next)); });
    lines_.emplace_back(line);
  });
  LOCKSTEP_LOG(error, "first");
  LOCKSTEP_LOG(error, "second");
  set_log_rank(0, 1);
  EXPECT_EQ(lines_, (std::vector<std::string>{"error: first\n", "later [rank 1] error: second\n"}));
}

TEST_F(Log, OfASinkThatLogsAsItGoes) {
  set_log_sink([tells = std::shared_ptr<void>(nullptr, [](void*) { LOCKSTEP_LOG(error, "gone"); })](
                   std::string_view) {});
  set_log_sink([this](std::string_view line) { lines_.emplace_back(line); });
  EXPECT_EQ(lines_, (std::vector<std::string>{"error: gone\n"}));
}

// As a terminal's, or a launcher's that reads late.
TEST_F(Log, WaitsForAFullPipeThatDoesNotBlock) {
  set_log_sink(nullptr);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  const int stderr_before = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  while (write(ends[1], "................", 16) > 0) continue;
  std::string read_back;
  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    char piece[4096];
    pollfd end{.fd = ends[0], .events = POLLIN, .revents = 0};
    while (poll(&end, 1, 2000) > 0 && !read_back.ends_with("heard\n"))
      read_back.append(piece, static_cast<std::size_t>(read(ends[0], piece, sizeof piece)));
  });
  LOCKSTEP_LOG(warning, "heard");
  reader.join();
  dup2(stderr_before, STDERR_FILENO);
  for (const int descriptor : {ends[0], ends[1], stderr_before}) close(descriptor);
  EXPECT_TRUE(read_back.ends_with("warning: heard\n"));
}

TEST_F(Log, OffSilencesErrors) {
  set_log_level(LogLevel::off);
  LOCKSTEP_LOG(error, "unheard");
  EXPECT_TRUE(lines_.empty());
}

}  // namespace
}  // namespace lockstep
