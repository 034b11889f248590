#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "lockstep/comm/memory.hpp"
#include "lockstep/observe/log.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "lockstep/runtime/event.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/train/step_graph.hpp"
#include "parallel/contracts.hpp"
#include "parallel/gpu_groups.hpp"
#include "parallel/replicas.hpp"
#include "support/mpi_world.hpp"

namespace lockstep::parallel::testing {
namespace {

using lockstep::testing::name_of_ranks;

const auto gpus = ::testing::Values(ranks_over_nccl);
INSTANTIATE_TEST_SUITE_P(Nccl, ReplicaContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Nccl, MixedDtypesContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Nccl, UseContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Nccl, UserHookContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Nccl, RewrappingContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Nccl, StepGraphContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Nccl, SyncBatchNormContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Nccl, BucketReductionContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Nccl, CommHookContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Nccl, StaticGraphContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Nccl, WeightContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Nccl, ZeroContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Nccl, GatherContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Nccl, GatheredUseContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Nccl, ZeroWriteContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Nccl, LossScaleContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Nccl, PlannerContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Nccl, PeriodicAveragingContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Nccl, DelayedReductionContract, gpus, name_of_ranks);

/// Lets what comes on `later` wait for what is on `earlier` now.
void order(StreamRef earlier, StreamRef later) {
  Event event(earlier.device);
  event.record(earlier);
  event.wait(later);
}

// The buckets of the first plan are freed in a backward on another stream than theirs, which still
// reads them. The simulated GPU reports whoever takes their memory too early.
TEST(ReplicaOnGpus, KeepsItsBucketsForTheStreamThatTrains) {
  run_over_nccl([](Communicator& group) {
    const Device gpu = device_of_rank;
    const Batch batch = Batch::of_step(0);
    const auto net = make_net(1), alone = make_net(1);
    const Stream side(gpu);
    order(current_stream(gpu), side);
    Replica replica(net, share(group), {.bucket_bytes = 1 << 10, .first_bucket_bytes = 1 << 10});
    order(current_stream(gpu), side);
    for (int step = 0; step < 3; ++step) {
      {
        const StreamGuard guard(side);
        replica.module().zero_grad();
        loss_of(replica(batch.x), batch).backward();
      }
      // Takes what the first stream has got back, and writes to it at once.
      for (const Bucket& bucket : replica.reducer().buckets())
        full({bucket.numel}, 99.0, {.dtype = bucket.dtype, .device = gpu});
    }
    side.synchronize();
    loss_of(alone->forward(batch.x), batch).backward();
    synchronize(current_stream(gpu));
    expect_close(gradients_of(*net), gradients_of(*alone), 1e-11, 1e-13);
  });
}

// Values after some steps, eager or through a StepGraph.
std::vector<double> train_with_buckets(Communicator& group, int stage, bool registers,
                                       bool captures) {
  Replica replica(make_net(7), share(group),
                  {.bucket_bytes = 1 << 10,
                   .first_bucket_bytes = 1 << 8,
                   .zero_stage = stage,
                   .register_buckets = registers});
  optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1, .momentum = 0.9});
  StepGraph graph(
      [&](std::span<const Tensor> in) {
        const Tensor loss = mse_loss(replica(in[0]), in[1]);
        loss.backward();
        optimizer.step();
        optimizer.zero_grad();
        return std::vector{loss.detach()};
      },
      {.group = share(group)});
  for (int step = 0; step < 5; ++step) {
    const Batch batch = own_part(group, step);
    const std::vector<Tensor> in{batch.x, batch.target};
    if (captures) {
      graph(in);
    } else {
      loss_of(replica(batch.x), batch).backward();
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  if (captures && stage < 3) {
    EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
  }
  const std::size_t page = comm::registration_granularity(group);
  EXPECT_EQ(page > 0, group.size() > 1);
  const bool has_registered = registers && page > 0 && stage < 2;
  for (std::size_t b = 0; has_registered && b < replica.reducer().buckets().size(); ++b) {
    const void* const data = replica.reducer().averages(b).data_ptr();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % page, 0u);
  }
  const auto all = replica.whole_parameters();
  return values_of(replica.module());
}

// The simulated NCCL reports buffers that go while they are registered, or that some ranks have
// registered and others not.
TEST(ReplicaOnGpus, TrainsToTheSameBitsWithRegisteredBuckets) {
  run_over_nccl([](Communicator& group) {
    for (const int stage : {0, 1, 2, 3})
      for (const bool captures : {false, true}) {
        if (captures && stage == 3) continue;  // such steps run eagerly
        EXPECT_EQ(train_with_buckets(group, stage, true, captures),
                  train_with_buckets(group, stage, false, captures))
            << "stage " << stage << (captures ? ", captured" : "");
      }
  });
}

/// Collects what is logged, for a scope.
class Log {
 public:
  Log() {
    set_log_sink([this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      text_ += line;
    });
  }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  ~Log() { set_log_sink(nullptr); }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

// One rank cannot register: no rank does, rank 0 says why, once, and training goes on.
TEST(ReplicaOnGpus, GoesOnWhereARankCannotRegisterItsBuckets) {
  run_over_nccl([](Communicator& group) {
    const int gpu = device_of_rank.index;
    if (device_runtime(device_of_rank.type).device_name(gpu).find("Simulated") == std::string::npos)
      return;  // NCCL reads its variables once
    const auto expected = train_with_buckets(group, 0, false, false);
    const bool is_last = group.rank() == group.size() - 1;
    if (is_last) setenv("NCCL_LOCAL_REGISTER", "0", 1);
    const Log log;
    EXPECT_EQ(train_with_buckets(group, 0, true, false), expected);
    if (is_last) unsetenv("NCCL_LOCAL_REGISTER");
    const std::string why = "buffers are not registered with NCCL, which goes on without: rank " +
                            std::to_string(group.size() - 1);
    if (group.rank() > 0 || group.size() == 1) {
      EXPECT_EQ(log.text(), "");
    } else {
      EXPECT_THAT(log.text(), ::testing::HasSubstr(why));
      EXPECT_THAT(log.text(), ::testing::HasSubstr("NCCL_LOCAL_REGISTER is 0"));
    }
  });
}

/// A page of device memory that is registered with a group of several ranks.
struct RegisteredPage {
  explicit RegisteredPage(Communicator& group) {
    const std::size_t page = comm::registration_granularity(group);
    memory =
        zeros({static_cast<std::int64_t>(2 * page / sizeof(float))}, {.device = device_of_rank});
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data_ptr());
    void* const begin = reinterpret_cast<void*>((address + page - 1) / page * page);
    const comm::MemoryRange range{begin, page};
    registration = comm::register_memory(group, {&range, 1});
    EXPECT_NE(registration, nullptr);
  }

  Tensor memory;
  std::unique_ptr<comm::Registration> registration;  // ends before the memory
};

// The simulated NCCL reports what is left at the end of its communicator, and memory that goes
// before it is deregistered.
TEST(RegistrationOnGpus, EndsWithItsGroup) {
  std::unique_ptr<RegisteredPage> page;
  run_over_nccl([&](Communicator& group) {
    if (group.size() > 1) page = std::make_unique<RegisteredPage>(group);
  });
}

TEST(RegistrationOnGpus, MayEndWithAGroupThatHasFailed) {
  run_over_nccl([](Communicator& group) {
    if (group.size() == 1) return;
    auto page = std::make_unique<RegisteredPage>(group);
    lockstep::testing::test_bootstrap().barrier();  // nobody is in an operation
    group.abort("the test ends it");
    page.reset();
    full({1 << 14}, 1.0, {.device = device_of_rank});  // where the page was
    const comm::MemoryRange none{};
    EXPECT_THROW(comm::register_memory(group, {&none, 1}), Error);
  });
}

/// Two branches, the second on a stream of its own.
struct Branches : nn::Module {
  explicit Branches(Device device) : side(device) {}

  Tensor forward(const Tensor& x) {
    const StreamRef main = current_stream(x.device());
    order(main, side);
    const Tensor first_half = first(x);
    Tensor second_half;
    {
      const StreamGuard guard(side);
      second_half = second(x);
    }
    order(side, main);
    second_half.record_stream(main);
    return first_half + second_half;
  }

  nn::Child<nn::Linear> first{this, "first", 6, 3, TensorOptions{.dtype = DType::f64}};
  nn::Child<nn::Linear> second{this, "second", 6, 3, TensorOptions{.dtype = DType::f64}};
  const Stream side;
};

// Both are in one bucket, which the first one gathers, and the second one uses on its stream.
TEST(ReplicaOnGpus, WaitsForGathersOnEachStreamThatUsesParameters) {
  run_over_nccl([](Communicator& group) {
    const auto outputs = [&](int stage) {
      auto net = nn::make<Branches>(device_of_rank);
      fill(*net, 3);
      net->to(device_of_rank);
      DistributedDataParallel<Branches> replica(net, share(group), {.zero_stage = stage});
      optim::SGD optimizer(replica.named_parameters(), {.lr = 0.1});
      std::vector<double> all;
      for (int step = 0; step < 3; ++step) {
        const Batch batch = own_part(group, step);
        const Tensor y = replica(batch.x);
        loss_of(y, batch).backward();
        optimizer.step();
        optimizer.zero_grad();
        const auto values = y.to_vector<double>();
        all.insert(all.end(), values.begin(), values.end());
      }
      return all;
    };
    const auto whole = outputs(0);
    for (const int stage : {1, 2, 3}) expect_close(outputs(stage), whole, 1e-11, 1e-13);
  });
}

/// Two layers that run side by side, one on a stream of its own.
struct SideBySide : nn::Module {
  nn::Child<nn::Linear> first{this, "first", 6, 3, TensorOptions{.dtype = DType::f64}};
  nn::Child<nn::Linear> second{this, "second", 6, 3, TensorOptions{.dtype = DType::f64}};
  std::vector<Tensor> forward(const Tensor& x, StreamRef side) {
    Tensor y = first(x);
    const StreamGuard guard(side);
    return {y, second(x)};
  }
};

// The second stream uses a bucket that the first one has waited for, and is not done with it
// when the forward lets go of it. The simulated GPU reports whoever comes too early.
TEST(ReplicaOnGpus, GathersParametersForEachStreamThatUsesThem) {
  run_over_nccl([](Communicator& group) {
    const Device gpu = device_of_rank;
    const auto net = nn::make<SideBySide>();
    net->to(gpu);
    DistributedDataParallel<SideBySide> replica(net, share(group), {.zero_stage = 3});
    const Tensor x = Batch::of_step(0).x;
    const Stream side(gpu);
    order(current_stream(gpu), side);
    const NoGradGuard no_recording;
    for (int step = 0; step < 3; ++step) {
      (void)replica(x, side.ref());
      for (const Bucket& bucket : replica.reducer().buckets())
        full({bucket.numel}, 99.0, {.dtype = bucket.dtype, .device = gpu});
    }
    side.synchronize();
  });
}

// NCCL does not end a communicator as long as there are graphs with its collectives.
TEST(ReplicaOnGpus, MayBeCapturedByAStepGraphThatOutlivesTheCommunicator) {
  std::unique_ptr<StepGraph> graph;
  TraceClock::time_point ended;
  Tensor x;
  run_over_nccl([&](Communicator& world) {
    if (world.size() > 1) return;  // options hold the group of several ranks
    x = ones({4}, {.device = device_of_rank});
    graph = std::make_unique<StepGraph>([&world](std::span<const Tensor> in) {
      return std::vector{all_reduce_async(in[0], world).wait()};
    });
    for (int i = 0; i < 5; ++i) (*graph)({x});
    EXPECT_TRUE(graph->replayed()) << graph->fallback_reason();
    ended = TraceClock::now();
  });
  if (!graph) return;
  EXPECT_LT(TraceClock::now() - ended, std::chrono::seconds(5));
}

// The host is done with a backward long before a GPU that has other work first.
TEST(ReplicaOnGpus, TellsWhenTheDeviceGotThere) {
  run_over_nccl([](Communicator& group) {
    const Device gpu = device_of_rank;
    const Batch batch = Batch::of_step(0);
    const auto net = make_net(1);
    Replica replica(net, share(group), {.bucket_bytes = 1 << 10, .first_bucket_bytes = 1 << 10});
    const Tensor large = rand({512, 512}, {.device = gpu});
    loss_of(replica(batch.x), batch).backward();
    Event before(gpu, true), after(gpu, true);
    const Tensor product = matmul(large, large);
    before.record(current_stream(gpu));
    loss_of(replica(batch.x), batch).backward();
    after.record(current_stream(gpu));
    const ReducerTrace trace = replica.reducer().trace();
    synchronize(current_stream(gpu));
    TraceClock::time_point last = before.reached_at();
    EXPECT_LE(last, trace.first_gradient);
    ASSERT_GT(trace.buckets.size(), 1u);
    for (const BucketTrace& bucket : trace.buckets) {
      EXPECT_LE(last, bucket.launched);
      EXPECT_LE(bucket.launched, bucket.started);
      EXPECT_LE(bucket.started, bucket.finished);
      EXPECT_LE(bucket.finished, trace.synchronized);
      last = bucket.launched;
    }
    EXPECT_LE(last, trace.backward_end);
    EXPECT_LE(trace.backward_end, trace.synchronized);
    EXPECT_LE(trace.synchronized, after.reached_at());
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
