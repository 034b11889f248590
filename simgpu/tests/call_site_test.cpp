#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace simgpu
