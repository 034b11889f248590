#include <set>

#include <gtest/gtest.h>

#include "backend/cuda/cudnn_ops.hpp"
#include "lockstep/runtime/stream.hpp"
#include "nccl/ranks.hpp"
#include "profile/records.hpp"
#include "support/device_array.hpp"

// What a profile tells of calls of cuDNN and NCCL, whatever of the work is done.

namespace lockstep::test {
namespace {

using backend::cudnn::AttentionArrays;
using backend::cudnn::ConvDirection;
using nlohmann::json;
using simgpu::testing::newest;
using simgpu::testing::records;

const Device gpu = cuda(0);
StreamRef stream() { return current_stream(gpu); }

DeviceArray array(DType dtype, const Shape& shape) {
  return DeviceArray(dtype, shape, gpu).randomize(1);
}

TEST(Profile, TellsShapeAndOperationsOfAttention) {
  const DeviceArray q = array(DType::bf16, {2, 4, 16, 8}), out = array(DType::bf16, {2, 4, 16, 8}),
                    k = array(DType::bf16, {2, 2, 24, 8}), v = array(DType::bf16, {2, 2, 24, 8}),
                    lse = array(DType::f32, {2, 4, 16});
  const AttentionArrays arrays{.q = q, .k = k, .v = v, .out = out, .lse = lse};
  ASSERT_TRUE(backend::cudnn::attention_forward(arrays, {}, stream()));
  const json record = newest("attention");
  const json expected{{"batch", 2},      {"heads", 4},
                      {"kv_heads", 2},   {"queries", 16},
                      {"keys", 24},      {"width", 8},
                      {"causal", false}, {"backward", false},
                      {"dtype", "bf16"}, {"flops", 2 * 2 * 2 * 4 * 16 * 24 * 8}};
  for (const auto& [member, value] : expected.items()) EXPECT_EQ(record[member], value) << member;
  EXPECT_EQ(record["device"], 0);
}

TEST(Profile, TellsShapeAndOperationsOfAConvolution) {
  const DeviceArray x = array(DType::f32, {2, 3, 8, 8}), w = array(DType::f32, {4, 3, 3, 3}),
                    y = array(DType::f32, {2, 4, 8, 8});
  ASSERT_TRUE(backend::cudnn::convolution(ConvDirection::forward, {x, w, y}, {.padding = {1, 1}},
                                          stream()));
  const json record = newest("convolution");
  EXPECT_EQ(record["pass"], "forward");
  EXPECT_EQ(record["dtype"], "f32");
  EXPECT_EQ(record["shape"]["image"], json({2, 3, 8, 8}));
  EXPECT_EQ(record["shape"]["weight"], json({4, 3, 3, 3}));
  EXPECT_EQ(record["shape"]["result"], json({2, 4, 8, 8}));
  EXPECT_EQ(record["flops"], 2 * (2 * 4 * 8 * 8) * (3 * 3 * 3));
}

TEST(Profile, TellsCollectivesOfEachRank) {
  constexpr std::size_t count = 1000;
  simgpu::testing::with_threads(2, [](simgpu::testing::Rank& self) {
    void* data = nullptr;
    ASSERT_EQ(cudaMalloc(&data, 4 * count), cudaSuccess);
    ASSERT_EQ(cudaMemsetAsync(data, 0, 4 * count, self.stream), cudaSuccess);
    ASSERT_EQ(
        ncclAllReduce(data, data, count, ncclFloat32, ncclSum, self.communicator, self.stream),
        ncclSuccess);
    self.synchronize();
    EXPECT_EQ(cudaFree(data), cudaSuccess);
  });
  std::set<int> devices;
  for (const json& record : records()) {
    if (record.value("kind", "") != "collective") continue;
    devices.insert(record["device"].get<int>());
    EXPECT_EQ(record["ranks"], 2);
    ASSERT_EQ(record["calls"].size(), 1u);
    const json call = record["calls"][0];
    EXPECT_EQ(call["op"], "AllReduce");
    EXPECT_EQ(call["dtype"], "f32");
    EXPECT_EQ(call["count"], count);
    EXPECT_EQ(call["bytes"], 4 * count);
  }
  EXPECT_EQ(devices, (std::set<int>{0, 1}));
}

}  // namespace
}  // namespace lockstep::test
