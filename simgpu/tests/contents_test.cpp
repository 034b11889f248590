#include <gtest/gtest.h>

#include "cuda_runtime_api.h"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "lockstep/tensor/factories.hpp"
#include "simgpu_fixture.hpp"

namespace simgpu {
namespace {

/// What the program says of a piece of memory that streams write and read.
class ContentsOfMemory : public SimgpuTest {
 protected:
  ContentsOfMemory() { put(nullptr, "writer", {{data_, 1024, true}}); }

  void complete() { lockstep::complete_memory(data_, 1024, lockstep::cuda(0)); }
  void discard() { lockstep::discard_memory(data_, 1024, lockstep::cuda(0)); }
  bool is_only(Finding finding) const {
    return reports_.size() == 1 && reports_[0].finding == finding;
  }

  char* data_ = make_memory(1024);

 private:
  // Writers and readers are on the legacy default stream: what is said of their memory, too.
  const lockstep::StreamGuard on_legacy_stream_{lockstep::StreamRef{lockstep::cuda(0)}};
};

TEST_F(ContentsOfMemory, AResultThatIsOverwrittenUnreadIsLost) {
  complete();
  put(nullptr, "next writer", {{data_ + 512, 64, true}});
  drain();
  ASSERT_TRUE(is_only(Finding::lost_result));
  for (const char* const part :
       {"next writer overwrites it", "64 bytes of byte 512", "contents_test"})
    EXPECT_NE(reports_[0].text.find(part), std::string::npos) << reports_[0].text;
}

TEST_F(ContentsOfMemory, AResultThatWasReadMayBeOverwritten) {
  complete();
  put(nullptr, "reader", {{data_, 1024, false}});
  put(nullptr, "next writer", {{data_, 1024, true}});
  drain();
  EXPECT_TRUE(reports_.empty());
}

TEST_F(ContentsOfMemory, WhatAKernelReadsAndWritesIsNotLost) {
  complete();
  put_kernel(nullptr, "accumulate", {}, {{data_, 1024, false}, {data_, 1024, true}});
  drain();
  EXPECT_TRUE(reports_.empty());
}

TEST_F(ContentsOfMemory, APartThatNobodyReadIsLost) {
  complete();
  put(nullptr, "reader", {{data_, 512, false}});
  put(nullptr, "next writer", {{data_, 1024, true}});
  drain();
  EXPECT_TRUE(is_only(Finding::lost_result));
}

TEST_F(ContentsOfMemory, ADiscardedResultMayBeOverwritten) {
  complete();
  discard();
  put(nullptr, "next writer", {{data_, 1024, true}});
  drain();
  EXPECT_TRUE(reports_.empty());
}

TEST_F(ContentsOfMemory, DiscardedMemoryCountsAsNotWritten) {
  discard();
  char value = 0;
  EXPECT_EQ(cudaMemcpy(&value, data_, 1, cudaMemcpyDeviceToHost), cudaSuccess);
  ASSERT_TRUE(is_only(Finding::uninitialized_read));
  EXPECT_NE(reports_[0].text.find("not written since it was discarded"), std::string::npos)
      << reports_[0].text;
}

TEST_F(ContentsOfMemory, GradientsThatProductsAddToAreNotLost) {
  const lockstep::TensorOptions options{.device = lockstep::cuda(0)};
  lockstep::Tensor weight = lockstep::ones({8, 4}, options);
  weight.set_requires_grad();
  for (int i = 0; i < 2; ++i)
    lockstep::matmul(lockstep::ones({2, 8}, options), weight).sum().backward();
  drain();
  EXPECT_TRUE(reports_.empty());
}

TEST_F(ContentsOfMemory, ItTakesEffectInStreamOrder) {
  const cudaStream_t stream = make_stream(cudaStreamNonBlocking);
  drain();
  put(stream, "writer", {{data_, 1024, true}});
  EXPECT_EQ(cudaMemsetAsync(data_, 0, 1024, stream), cudaSuccess);
  lockstep::block_observer()->discarded(data_, 1024, {lockstep::cuda(0), stream});
  EXPECT_EQ(cudaMemsetAsync(data_, 0, 1024, stream), cudaSuccess);
  lockstep::block_observer()->completed(data_, 1024, {lockstep::cuda(0), stream});
  char value = 1;
  EXPECT_EQ(cudaMemcpyAsync(&value, data_, 1, cudaMemcpyDeviceToHost, stream), cudaSuccess);
  drain();
  EXPECT_TRUE(reports_.empty());
}

}  // namespace
}  // namespace simgpu
