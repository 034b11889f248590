#include "lockstep/core/parallel.hpp"

#include <atomic>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

class Parallel : public ::testing::Test {
 protected:
  void SetUp() override { set_num_threads(3); }
  void TearDown() override { set_num_threads(before_); }

 private:
  int before_ = num_threads();
};

TEST_F(Parallel, CoversEveryItemOnce) {
  for (const std::int64_t total : {0, 1, 2, 3, 100, 1001}) {
    std::vector<std::atomic<int>> seen(static_cast<std::size_t>(total));
    parallel_for(total, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
    });
    for (const auto& count : seen) EXPECT_EQ(count, 1);
  }
}

TEST_F(Parallel, RunsSmallWorkInOnePart) {
  std::atomic<int> parts = 0;
  parallel_for(10, 100, [&](std::int64_t begin, std::int64_t end) {
    ++parts;
    EXPECT_EQ(end - begin, 10);
  });
  EXPECT_EQ(parts, 1);
}

TEST_F(Parallel, CarriesAnExceptionToTheCaller) {
  const auto failing = [](std::int64_t begin, std::int64_t) {
    if (begin == 0) LOCKSTEP_THROW(InvalidArgument, "part ", begin);
  };
  EXPECT_THROW(parallel_for(1000, 1, failing), InvalidArgument);
}

TEST_F(Parallel, NestedCallsRunSerially) {
  std::atomic<int> items = 0;
  parallel_for(8, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      parallel_for(10, 1,
                   [&](std::int64_t b, std::int64_t e) { items += static_cast<int>(e - b); });
  });
  EXPECT_EQ(items, 80);
}

TEST_F(Parallel, RefusesNoThreads) { EXPECT_THROW(set_num_threads(0), InvalidArgument); }

}  // namespace
}  // namespace lockstep
