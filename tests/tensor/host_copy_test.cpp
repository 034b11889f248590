#include "lockstep/tensor/host_copy.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/runtime/info.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/place.hpp"

namespace lockstep {
namespace {

using Values = std::vector<float>;

class HostCopyAt : public ::testing::TestWithParam<testing::Place> {
 protected:
  void SetUp() override {
    if (is_missing(GetParam())) GTEST_SKIP() << "no CUDA device on this machine";
  }
  Device device = GetParam().device;
};

TEST_P(HostCopyAt, HoldsTheValuesOfTheMomentInWhichItWasMade) {
  const testing::PlaceScope scope(GetParam());
  const Tensor x = tensor<float>({1, 2, 3, 4}, device).reshape({2, 2});
  const HostCopy whole(x), column(x.select(1, 1));
  Tensor(x).fill_(9);
  EXPECT_EQ(column.wait().to_vector<float>(), (Values{2, 4}));
  EXPECT_EQ(whole.wait().shape(), Shape({2, 2}));
  EXPECT_TRUE(whole.wait().device().is_cpu());
  EXPECT_EQ(whole.wait().to_vector<float>(), (Values{1, 2, 3, 4}));
  EXPECT_TRUE(whole.is_ready());
}

TEST_P(HostCopyAt, GivesTheOnlyElement) {
  const testing::PlaceScope scope(GetParam());
  EXPECT_EQ(HostCopy(scalar(2.5, {.device = device})).item(), 2.5);
  EXPECT_THROW(static_cast<void>(HostCopy(zeros({2}, {.device = device})).item()), InvalidArgument);
}

TEST_P(HostCopyAt, MayEndBeforeItsValuesAreThere) {
  const testing::PlaceScope scope(GetParam());
  const Tensor x = full({1000}, 3, {.device = device});
  for (int i = 0; i < 20; ++i) const HostCopy unread(x * i);
  EXPECT_EQ(HostCopy(x.sum()).item(), 3000);
}

INSTANTIATE_TEST_SUITE_P(Places, HostCopyAt, ::testing::ValuesIn(testing::places()),
                         testing::place_name);

TEST(PinnedMemory, IsRefusedWithoutAGpu) {
  if (cuda_device_count() > 0) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_THROW(zeros({2}).pin_memory(), Unsupported);
  EXPECT_FALSE(zeros({2}).is_pinned());
}

TEST(PinnedMemory, NonBlockingCopiesOnTheHostAreThereAtOnce) {
  const Tensor x = tensor<float>({1, 2});
  EXPECT_TRUE(x.to(cpu, true).is_same(x));
  EXPECT_EQ(zeros({2}).copy_(x, true).to_vector<float>(), (Values{1, 2}));
}

class PinnedTensorsGpu : public testing::OnGpu {};

TEST_F(PinnedTensorsGpu, HoldTheValuesOfTheirSource) {
  const Tensor x = arange(6, {.dtype = DType::f32}).reshape({2, 3});
  const Tensor pinned = x.transpose(0, 1).pin_memory();
  EXPECT_TRUE(pinned.is_pinned());
  EXPECT_TRUE(pinned.select(0, 1).is_pinned());
  EXPECT_TRUE(pinned.pin_memory().is_same(pinned));
  EXPECT_EQ(pinned.to_vector<float>(), (Values{0, 3, 1, 4, 2, 5}));
  EXPECT_TRUE(zeros({0}).pin_memory().is_pinned());
  EXPECT_THROW(x.to(device).pin_memory(), InvalidArgument);
}

TEST_F(PinnedTensorsGpu, GoThereAndBackWithoutWaiting) {
  const Tensor pinned = arange(1000, {.dtype = DType::f32}).pin_memory();
  const Tensor there = pinned.to(device, true);
  const Tensor back = (there + 1.0).to(cpu, true);
  EXPECT_TRUE(back.is_pinned());
  synchronize(current_stream(device));
  EXPECT_EQ(back.flat<float>()[999], 1000);
}

TEST_F(PinnedTensorsGpu, MayEndWhileTheyAreCopied) {
  Tensor sum = zeros({256}, {.device = device});
  for (int i = 0; i < 20; ++i) sum.add_(full({256}, i).pin_memory().to(device, true));
  EXPECT_EQ(sum.to_vector<float>(), Values(256, 190));
}

TEST_F(PinnedTensorsGpu, AreNotNeededToCopyWithoutWaiting) {
  Tensor x = full({256}, 1);
  Tensor sum = zeros({256}, {.device = device});
  for (int i = 0; i < 20; ++i) {
    sum.add_(x.to(device, true));
    x.add_(ones({256}));  // at once: the copy holds the former values
  }
  EXPECT_EQ(sum.to_vector<float>(), Values(256, 210));
}

TEST_F(PinnedTensorsGpu, CopiesIntoPageableMemoryAreThereAllTheSame) {
  const Tensor x = full({2, 3}, 7, {.device = device});
  Tensor into = zeros({3, 2});
  into.transpose(0, 1).copy_(x, true);
  EXPECT_EQ(into.to_vector<float>(), Values(6, 7));
}

TEST_F(PinnedTensorsGpu, CopiesBetweenGpusFollowTheirSourceAndPrecedeItsChange) {
  if (cuda_device_count() < 2) GTEST_SKIP() << "needs 2 GPUs";
  Tensor x = full({4096}, 1, {.device = cuda(0)});
  const Tensor y = x.to(cuda(1));
  x.fill_(2);
  EXPECT_EQ(y.to_vector<float>(), Values(4096, 1));
}

}  // namespace
}  // namespace lockstep
