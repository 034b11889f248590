#include "lockstep/core/intrusive_ptr.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

struct Counted : RefCounted {
  explicit Counted(int& alive) : alive_(alive) { ++alive_; }
  ~Counted() override { --alive_; }
  int& alive_;
};

TEST(IntrusivePtr, DestroysWithTheLastHandle) {
  int alive = 0;
  {
    const auto first = make_intrusive<Counted>(alive);
    const IntrusivePtr<RefCounted> second = first;
    EXPECT_EQ(first->use_count(), 2u);
    EXPECT_EQ(alive, 1);
  }
  EXPECT_EQ(alive, 0);
}

TEST(IntrusivePtr, MovesAndAdoptsWithoutCounting) {
  int alive = 0;
  auto first = make_intrusive<Counted>(alive);
  auto second = std::move(first);
  EXPECT_FALSE(first);
  EXPECT_EQ(second->use_count(), 1u);
  Counted* bare = second.detach();
  second = IntrusivePtr<Counted>::adopt(bare);
  EXPECT_EQ(second->use_count(), 1u);
  second = second;
  second.reset();
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace lockstep
