#include "checkpoint/later_copies.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/thread_job.hpp"
#include "lockstep/lockstep.hpp"
#include "support/temporary_folder.hpp"
#include "tensor/background_reads.hpp"

// What is copied beside training, and who waits for it.

namespace lockstep {
namespace {

using checkpoint::LaterCopies, checkpoint::Manager, checkpoint::Piece, checkpoint::TensorState;
using testing::run_job, testing::TemporaryFolder;

/// A write returns when the read has ended, and if something else is read, at once.
void expect_waits(const std::string& what, const Tensor& read, const std::function<void()>& write) {
  const Tensor other = zeros({16});
  {
    const BackgroundRead reading(other.data_ptr(), other.nbytes());
    write();
  }
  std::optional<BackgroundRead> reading(std::in_place, read.data_ptr(), read.nbytes());
  std::atomic<bool> has_ended = false;
  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    has_ended = true;
    reading.reset();
  });
  const double before = waited_for_reads();
  write();
  EXPECT_TRUE(has_ended) << what;
  EXPECT_GT(waited_for_reads(), before) << what;
  reader.join();
}

Tensor state_named(const optim::Optimizer& optimizer, std::string_view name) {
  for (const auto& [key, value] : optimizer.state_dict())
    if (key == name) return value;
  throw Error("no such state");
}

TEST(BackgroundReads, WritesWaitForThem) {
  manual_seed(1);
  const NoGradGuard no_recording;
  auto net = nn::make<nn::Linear>(4, 4);
  Tensor weight = net->weight;
  const Tensor x = ones({2, 4});
  expect_waits("an op in place", weight, [&] { weight.mul_(0.5); });
  expect_waits("a view", weight, [&] { weight.narrow(0, 1, 1).fill_(2.0); });
  expect_waits("a collective", weight, [&] { parallel::writable_buffer(weight); });
  const NamedTensors state = [&] {
    NamedTensors copies;
    for (const auto& [name, value] : net->state_dict()) copies.emplace_back(name, value.clone());
    return copies;
  }();
  expect_waits("a state dict", weight, [&] { net->load_state_dict(state); });
}

TEST(BackgroundReads, UpdatesWaitForThem) {
  manual_seed(1);
  auto net = nn::make<nn::Linear>(4, 4);
  optim::AdamW optimizer(net->named_parameters(), {.lr = 0.1});
  optim::WeightAverage average(net->named_parameters());
  const Tensor x = ones({2, 4});
  const auto step = [&] {
    optimizer.zero_grad();
    net(x).sum().backward();
    optimizer.step();
  };
  step();
  average.update();
  expect_waits("parameters", net->weight, step);
  expect_waits("moments", state_named(optimizer, "bias.exp_avg_sq"), step);
  expect_waits("averages", average.state_dict()[0].second, [&] { average.update(); });
  expect_waits("averages that come in", net->weight, [&] { const auto in = average.swap_in(); });
}

TEST(BackgroundReads, LaunchesOfCapturedStepsWaitForThem) {
  manual_seed(1);
  auto net = nn::make<nn::Linear>(4, 4);
  optim::AdamW optimizer(net->named_parameters(), {.lr = 0.1});
  optim::WeightAverage average(net->named_parameters(), {.decay = 0.9});
  StepGraph graph([&](std::span<const Tensor> in) {
    optimizer.zero_grad();
    const Tensor loss = net(in[0]).sum();
    loss.backward();
    optimizer.step();
    average.update();
    return std::vector<Tensor>{loss};
  });
  const auto step = [&] { graph({ones({2, 4})}); };
  for (int i = 0; i < 20 && !graph.replayed(); ++i) step();
  ASSERT_TRUE(graph.replayed()) << graph.fallback_reason();
  expect_waits("parameters", net->weight, step);
  expect_waits("moments", state_named(optimizer, "weight.exp_avg"), step);
  expect_waits("averages", average.state_dict()[0].second, step);
  EXPECT_TRUE(graph.replayed());
}

TEST(BackgroundReads, WritesToSharedOutParametersWaitForThem) {
  for (const int stage : {1, 2, 3})
    run_job(2, [&](const CommunicatorPtr& group) {
      manual_seed(1);
      auto net = nn::make<nn::Linear>(64, 64);
      DistributedDataParallel ddp(net, group, {.zero_stage = stage});
      optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.1});
      const auto step = [&] {
        optimizer.zero_grad();
        ddp(ones({2, 64})).sum().backward();
        optimizer.step();
      };
      step();
      // Another rank's half too, which the gather behind the update writes.
      const Tensor read = stage < 3 ? Tensor(net->weight) : ddp.named_parameters()[0].second;
      expect_waits(detail::concat("stage ", stage), read.detach(), step);
    });
}

/// Parameters, of which a copy takes some time, and a buffer.
struct Large : nn::Module {
  nn::Parameter weight{this, "weight", full({4 << 20}, 1.0)};
  nn::Buffer calls{this, "calls", full({1 << 16}, 1.0)};
};

TEST(CheckpointManager, SavesWhatWasThereWhateverIsWrittenBehindTheCall) {
  const TemporaryFolder folder;
  run_job(2, [&](const CommunicatorPtr& group) {
    const NoGradGuard no_recording;
    auto model = nn::make<Large>();
    Tensor own = full({1 << 20}, 1.0);
    Manager manager(folder / "run", group);
    manager.add("model", model);
    manager.add(
        "own",
        TensorState{.pieces = [&] { return std::vector<Piece>{{.name = "own", .tensor = own}}; },
                    .load = [&](const NamedTensors& all) { own.copy_(all[0].second); }});
    for (std::int64_t step = 1; step <= 3; ++step) {
      const auto value = static_cast<float>(step);
      Tensor(model->weight).fill_(value);
      Tensor(model->calls).fill_(value);
      own.fill_(value);
      manager.save(step);
      // What a forward does to buffers, and who writes through pointers, is not waited for.
      for (const Tensor& each : {Tensor(model->calls), own})
        std::fill_n(static_cast<float*>(each.data_ptr()), each.numel(), -1.0F);
      Tensor(model->weight).mul_(-1);
    }
    ASSERT_TRUE(manager.wait()) << manager.error();
    for (const std::int64_t step : {2, 3}) {
      manager.load(folder / detail::concat("run/step-", step));
      for (const Tensor& each : {Tensor(model->weight), Tensor(model->calls), own}) {
        EXPECT_EQ(each.min().item(), static_cast<double>(step));
        EXPECT_EQ(each.max().item(), static_cast<double>(step));
      }
    }
  });
}

TEST(LaterCopies, ComeInOrderAndLetWritersGo) {
  checkpoint::Throttle throttle;
  LaterCopies copies;
  std::vector<float> to(3 << 20);
  const auto place = std::as_writable_bytes(std::span(to));
  std::vector<Tensor> tensors;
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < 3; ++i) {
      tensors.push_back(full({1 << 20}, static_cast<double>(i + 1)));
      copies.add(tensors.back(), 0, place.subspan(i * (4 << 20), 4 << 20));
    }
    copies.start(throttle);
    copies.wait_until(place.data() + (8 << 20));
    EXPECT_EQ(to[0], 1);
    EXPECT_EQ(to[(2 << 20) - 1], 2);
    tensors.back().fill_(9.0);
    EXPECT_EQ(to.back(), 3);
    copies.finish();
    std::ranges::fill(to, 0.0F);
  }
  copies.add(tensors[0], 0, place.first(4 << 20));
  copies.discard();
  tensors[0].fill_(7.0);  // waits for nothing
  copies.start(throttle);
  copies.wait_until(place.data() + place.size());
}

// First within it, where it has memory to spare.
TEST(LaterCopiesOnGpu, AreOfWhatWasThereWhoeverWritesBehindTheStart) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  for (const bool has_memory : {false, true}) {
    checkpoint::Throttle throttle;
    LaterCopies copies(has_memory ? 0.5 : 0);
    std::vector<float> to(4 << 20, -1.0F);
    const auto place = std::as_writable_bytes(std::span(to));
    Tensor first = full({2 << 20}, 1.0, {.device = cuda(0)});
    Tensor second = full({2 << 20}, 2.0, {.device = cuda(0)});
    copies.add(first, 0, place.first(8 << 20));
    copies.add(second, 4, place.subspan(8 << 20, (8 << 20) - 4));
    copies.start(throttle);
    EXPECT_EQ(copies.copied_within(), has_memory);
    {  // of another stream, which waits for no other
      const Stream other(cuda(0));
      const StreamGuard guard(other);
      second.fill_(9.0);
      first.fill_(9.0);
      other.synchronize();
    }
    copies.finish();
    copies.wait_until(place.data() + place.size());
    EXPECT_EQ(to.front(), 1);
    EXPECT_EQ(to[(2 << 20) - 1], 1);
    EXPECT_EQ(to[2 << 20], 2);
    EXPECT_EQ(to[(4 << 20) - 2], 2);
    EXPECT_EQ(to.back(), -1);
  }
}

TEST(LaterCopiesOnGpu, GoWhereTrainingNeedsTheirMemory) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  constexpr std::size_t bytes = std::size_t{64} << 20;
  MemoryPool& pool = memory_pool(cuda(0));
  checkpoint::Throttle throttle;
  LaterCopies copies;
  std::vector<float> to(bytes / sizeof(float));
  const Tensor tensor = full({std::ssize(to)}, 1.0, {.device = cuda(0)});
  for (int save = 0; save < 3; ++save) {  // what the pool keeps of one is there for the next
    copies.add(tensor, 0, std::as_writable_bytes(std::span(to)));
    copies.start(throttle);
    EXPECT_TRUE(copies.copied_within());
    pool.trim();
    pool.set_limit(pool.statistics().reserved_bytes);
    EXPECT_NO_THROW(Storage::allocate(bytes, cuda(0)));
    copies.finish();
    EXPECT_EQ(to.back(), 1);
    to.back() = 0;
    copies.add(tensor, 0, std::as_writable_bytes(std::span(to)));
    copies.start(throttle);  // for which the limit leaves too little
    EXPECT_FALSE(copies.copied_within());
    copies.finish();
    EXPECT_EQ(to.back(), 1);
    to.back() = 0;
    pool.set_limit(std::numeric_limits<std::size_t>::max());
  }
}

}  // namespace
}  // namespace lockstep
