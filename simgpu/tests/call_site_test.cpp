#include <algorithm>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include <execinfo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/stack_walk.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/memory/allocator.hpp"
#include "lockstep/tensor/factories.hpp"
#include "memory/address_space.hpp"

namespace simgpu {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(CallSite, OfAPoolBlockIsTheCallerOfThePool) {
  lockstep::Allocator& pool = lockstep::device_allocator(lockstep::cuda(0));
  lockstep::MemoryBlock* const block = pool.allocate(64, {lockstep::cuda(0), nullptr});
  const std::string text = describe_address(block->data);
  EXPECT_THAT(text, HasSubstr("handed out by TestBody (simgpu/tests/call_site_test.cpp"));
  EXPECT_THAT(text, Not(HasSubstr("caching_pool.hpp")));
  pool.deallocate(block);
}

TEST(CallSite, ReachesTheProgramHoweverDeepTheLibrary) {
  const auto options = lockstep::TensorOptions{.device = lockstep::cuda(0)};
  const lockstep::Tensor x = lockstep::ones({4, 4}, options);
  const lockstep::Tensor y = lockstep::softmax(lockstep::matmul(x, x), -1).sum();
  EXPECT_THAT(describe_address(y.data_ptr()), HasSubstr("call_site_test.cpp"));
}

// Return addresses as glibc finds them, without those of the functions that look for them.
std::vector<void*> addresses_by_glibc() {
  std::vector<void*> found(100);
  found.resize(static_cast<std::size_t>(::backtrace(found.data(), 100)));
  return found;
}

std::size_t walks = 0, walks_alike = 0;

void compare_walks() {
  std::vector<void*> walked(90);
  walked.resize(walk_stack(walked));
  const std::vector<void*> expected = addresses_by_glibc();
  // All but the innermost: both calls are from here, at another place.
  const auto is_same = [&](std::size_t i) {
    return walked[walked.size() - i] == expected[expected.size() - i];
  };
  std::size_t alike = 0;
  while (alike < std::min(walked.size(), expected.size()) && is_same(alike + 1)) ++alike;
  ++walks;
  if (alike + 4 >= walked.size() && alike + 4 >= expected.size()) ++walks_alike;
}

// Calls itself from two places, and with frames of several sizes.
[[gnu::noinline]] void call_deeper(int depth, std::mt19937& random) {
  compare_walks();
  if (depth == 0) return;
  volatile char* const some = static_cast<volatile char*>(__builtin_alloca(16 + random() % 64));
  some[0] = 1;
  if (random() % 2)
    call_deeper(depth - 1, random);
  else
    std::function<void()>(
        [&] { call_deeper(depth - 1 - static_cast<int>(random() % 2) * (depth > 1), random); })();
  if (random() % 4 == 0) call_deeper(depth - 1, random);
  compare_walks();
}

TEST(CallSite, IsThatOfGlibcWhateverWasCalledBefore) {
  std::mt19937 random(1);
  for (int i = 0; i < 40; ++i) call_deeper(8, random);
  std::thread([&] { call_deeper(8, random); }).join();
  EXPECT_EQ(walks_alike, walks);
  EXPECT_GT(walks, 500u);
}

}  // namespace
}  // namespace simgpu
