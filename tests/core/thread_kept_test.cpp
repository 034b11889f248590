#include "lockstep/core/thread_kept.hpp"

#include <atomic>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

namespace lockstep::detail {
namespace {

struct Counted {
  Counted() { ++alive; }
  Counted(Counted&&) noexcept { ++alive; }
  ~Counted() { --alive; }
  static inline std::atomic<int> alive = 0;
};

/// Calls what it was given when the thread ends.
struct AtEnd {
  std::function<void()> call;
  ~AtEnd() {
    if (call) call();
  }
};

TEST(ThreadKept, IsMadeOnceForEachThreadAndGoesWithIt) {
  static thread_local KeptByThread<Counted> kept;
  kept.get();
  for (int i = 0; i < 3; ++i) std::thread([] { EXPECT_EQ(&kept.get(), &kept.get()); }).join();
  EXPECT_EQ(Counted::alive, 1);
}

// Destructors run in the opposite order: this one behind those of all that came later.
TEST(ThreadKept, IsThereForDestructorsOfTheThread) {
  static thread_local KeptByThread<Counted> kept, late;
  const int before = Counted::alive;
  bool was_same = false;
  std::thread([&] {
    static thread_local AtEnd at_end;
    at_end.call = [&, first = &kept.get()] {
      was_same = first == &kept.get();
      late.get();  // for the first time
    };
    EXPECT_EQ(Counted::alive, before + 1);
  }).join();
  EXPECT_TRUE(was_same);
  EXPECT_EQ(Counted::alive, before);
}

}  // namespace
}  // namespace lockstep::detail
