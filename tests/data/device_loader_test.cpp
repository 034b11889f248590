#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/data/tensor_dataset.hpp"
#include "lockstep/data/token_dataset.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/place.hpp"

// Loaders that put batches on a GPU.

namespace lockstep::data {
namespace {

struct Pairs {
  Tensor left, right;
  std::string name;
  void visit_tensors(auto&& visit) {
    visit(left);
    visit(right);
  }
};

static_assert(has_tensors<Tensor> && has_tensors<Pairs> && has_tensors<TensorBatch> &&
              has_tensors<TokenBatch>);
static_assert(has_tensors<std::vector<std::pair<int, Tensor>>>);
static_assert(!has_tensors<std::vector<int>> && !has_tensors<std::string> &&
              !has_tensors<std::tuple<int, std::string>>);

TEST(VisitTensors, FindsThemInRangesTuplesAndStructs) {
  const auto a = scalar(1), b = scalar(2), c = scalar(3);
  std::tuple<int, std::vector<Tensor>, Pairs> batch{7, {a}, {b, c, "names stay"}};
  std::vector<double> seen;
  const auto note = [&](Tensor& tensor) { seen.push_back(tensor.item()); };
  visit_tensors(batch, note);
  EXPECT_EQ(seen, (std::vector<double>{1, 2, 3}));
}

/// Lives on a GPU, and fetches there.
struct RowsOnDevice {
  Tensor rows;
  std::int64_t size() const { return rows.size(0); }
  Tensor fetch(std::span<const std::int64_t> indices) const {
    const Tensor index =
        from_span<std::int64_t>(indices, {static_cast<std::int64_t>(indices.size())});
    return index_select(rows, 0, index.to(rows.device())) * 2.0;
  }
};

// The simulated GPU reports the race if it does not.
TEST(DeviceLoader, GpuStreamOfTheConsumerWaitsForBatchesThatWorkersMadeThere) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device on this machine";
  const RowsOnDevice data{arange(64, {.dtype = DType::f32, .device = cuda(0)}).reshape({64, 1})};
  synchronize(current_stream(cuda(0)));
  const Stream stream(cuda(0));
  const StreamGuard guard(stream);
  DataLoader loader(data, SequentialSampler(64),
                    {.batch_size = 8, .num_workers = 2, .device = cuda(0)});
  double total = 0;
  for (const Tensor& batch : loader) total += sum(batch).item();
  EXPECT_EQ(total, 4032);
}

/// Batches without a tensor.
struct Numbers {
  std::int64_t size() const { return 4; }
  std::vector<int> fetch(std::span<const std::int64_t> indices) const {
    return std::vector<int>(indices.size());
  }
};

TEST(DeviceLoader, RefusesBatchesWithoutATensor) {
  try {
    DataLoader(Numbers(), SequentialSampler(4), {.device = cuda(0)});
    FAIL() << "there is nothing to put on a device";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("visit_tensors"), std::string::npos) << error.what();
  }
}

class DeviceLoaderGpu : public lockstep::testing::OnGpu,
                        public ::testing::WithParamInterface<int> {};

TEST_P(DeviceLoaderGpu, HandsOutWhatTheHostWouldOnTheDevice) {
  const Tensor rows = arange(64 * 100, {.dtype = DType::f32}).reshape({64, 100});
  const TensorDataset dataset({rows, arange(64)});
  const DataLoaderOptions options{.batch_size = 5, .num_workers = GetParam(), .prefetch = 3};
  DataLoaderOptions there = options;
  there.device = device;
  DataLoader on_host(dataset, RandomSampler(64, 3), options);
  DataLoader on_device(dataset, RandomSampler(64, 3), there);
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<std::vector<float>> expected, seen;
    std::vector<Tensor> kept;
    for (auto& batch : on_host) expected.push_back((batch[0] * 2.0).to_vector<float>());
    for (auto& batch : on_device) {
      EXPECT_EQ(batch[1].device(), device);
      kept.push_back(batch[0] * 2.0);  // the batch ends while this is queued
    }
    for (const Tensor& each : kept) seen.push_back(each.to_vector<float>());
    EXPECT_EQ(seen, expected);
  }
}

TEST_P(DeviceLoaderGpu, MayBeLeftEarlyAndStartedAgain) {
  const TensorDataset dataset({arange(32)});
  DataLoader loader(dataset, SequentialSampler(32),
                    {.batch_size = 2, .num_workers = GetParam(), .device = device});
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto& batch : loader) {
      EXPECT_EQ(batch[0].to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 1}));
      break;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Workers, DeviceLoaderGpu, ::testing::Values(0, 1, 3));

}  // namespace
}  // namespace lockstep::data
