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

// Destructors run in the opposite order: this one runs when what the thread has kept is gone.
TEST(ThreadKept, IsMadeAnewBehindTheThreadsEnd) {
  static thread_local KeptByThread<int> kept;
  int seen = 0;
  std::thread([&] {
    static thread_local AtEnd at_end;
    at_end.call = [&] { seen = kept.get([] { return 7; }); };
    EXPECT_EQ(kept.get([] { return 5; }), 5);
  }).join();
  EXPECT_EQ(seen, 7);
}

}  // namespace
}  // namespace lockstep::detail
