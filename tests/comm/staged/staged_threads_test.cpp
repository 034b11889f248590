// Buffers on a GPU that are exchanged through the host: ranks are threads, which share the GPU.

#include <atomic>
#include <chrono>
#include <thread>

#include <cuda_runtime_api.h>

#include "comm/contracts.hpp"
#include "comm/uploading_communicator.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/comm/thread_world.hpp"
#include "lockstep/runtime/event.hpp"
#include "lockstep/runtime/info.hpp"
#include "lockstep/tensor/factories.hpp"
#include "lockstep/train/step_graph.hpp"
#include "runtime/background_failure.hpp"

namespace lockstep::comm {
namespace {

std::string missing_gpu() { return cuda_device_count() > 0 ? "" : "no CUDA device"; }

using testing::ContractRanks, testing::name_of_ranks;

ContractRanks threads(int ranks) {
  return {.name = "Threads" + std::to_string(ranks),
          .run =
              [=](const ContractRanks::Body& body, const CommunicatorOptions& options) {
                const auto uploading = [&](Communicator& group) { run_uploading(group, body); };
                run_ranks(ranks, uploading, options, cuda(0));
              },
          .missing = missing_gpu};
}

const auto groups = ::testing::Values(threads(1), threads(2), threads(3));
INSTANTIATE_TEST_SUITE_P(Staged, CommunicatorContract, groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Staged, HostCommunicatorContract, groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Staged, BatchContract, groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Staged, HostBatchContract, groups, name_of_ranks);

class StagedGroup : public ::testing::Test {
 protected:
  static constexpr Device gpu = cuda(0);

  void SetUp() override {
    if (const std::string what = missing_gpu(); !what.empty()) GTEST_SKIP() << what;
  }
  static void run(int ranks, const std::function<void(Communicator&)>& body,
                  const CommunicatorOptions& options = {.timeout = std::chrono::seconds(60)}) {
    run_ranks(ranks, body, options, gpu);
  }
  static Buffer buffer_of(Tensor& tensor) {
    return {tensor.data_ptr(), tensor.numel(), DType::f32};
  }
  static Tensor filled(std::int64_t count, double value) {
    return full({count}, value, {.device = gpu});
  }
};

TEST_F(StagedGroup, TellsWhatItIsMadeOf) {
  run(2, [](Communicator& group) {
    EXPECT_EQ(group.backend(), "thread, staged");
    EXPECT_EQ(group.device(), gpu);
    const CommunicatorPtr part = group.split(0, 0);
    EXPECT_EQ(part->backend(), "thread, staged");
    EXPECT_EQ(part->device(), gpu);
  });
}

// Nothing is waited for on the host but by the Work: the simulated GPU reports what is not ordered.
TEST_F(StagedGroup, IsOrderedBehindTheCallersStreamAndBeforeWhatWaits) {
  run(2, [](Communicator& group) {
    const Stream side(gpu);
    for (int step = 0; step < 20; ++step) {
      const StreamGuard guard(step % 2 ? side.ref() : current_stream(gpu));
      Tensor a = filled(5'000, 1.0) + 1.0, b = filled(70'001, 3.0);
      const Work first = group.all_reduce(buffer_of(a)), second = group.all_reduce(buffer_of(b));
      second.wait();
      first.wait();
      EXPECT_EQ((a.sum() + b.sum()).item(), 2 * (2.0 * 5'000 + 3.0 * 70'001));
    }
    side.synchronize();
  });
}

TEST_F(StagedGroup, HandsResultsToTheNextOperation) {
  run(2, [](Communicator& group) {
    for (int round = 0; round < 10; ++round) {
      Tensor values = filled(40'000, 1.0), all = filled(80'000, 0.0);
      const Buffer part{static_cast<float*>(values.data_ptr()) + group.rank() * 20'000, 20'000,
                        DType::f32};
      group.all_reduce(buffer_of(values));
      group.reduce_scatter(buffer_of(values), part);
      group.all_gather(part, buffer_of(values));
      group.all_gather(buffer_of(values), buffer_of(all)).wait();
      EXPECT_EQ(all.sum().item(), 4.0 * 80'000);
    }
  });
}

TEST_F(StagedGroup, TimesWhatItCarriesOut) {
  run(2, [](Communicator& group) {
    Tensor values = filled(1'000, 1.0);
    const Work work = group.all_reduce(buffer_of(values));
    work.synchronize();
    ASSERT_TRUE(work.times());
    EXPECT_LE(work.times()->submitted, work.times()->started);
    EXPECT_LE(work.times()->started, work.times()->finished);
    EXPECT_EQ(work.duration(), work.times()->finished - work.times()->started);
  });
}

TEST_F(StagedGroup, SaysWhatItIsDoing) {
  run(2, [](Communicator& group) {
    EXPECT_THAT(group.describe_progress(), ::testing::HasSubstr("idle, no operation so far"));
    if (group.rank() == 0) {
      const Work work = group.barrier({.label = "late"});
      const std::string sees = "; thread, staged: exchanges barrier #0 'late', 0 more queued";
      for (int i = 0; i < 500; ++i) {
        if (group.describe_progress().find(sees) != std::string::npos) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      EXPECT_THAT(group.describe_progress(), ::testing::HasSubstr(sees));
      EXPECT_FALSE(work.is_completed());
      group.abort("seen");
      EXPECT_THROW(work.wait(), PeerFailure);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
  });
}

TEST_F(StagedGroup, FailureIsKeptForWhoReadsResultsUnlessSomebodyWasTold) {
  for (const bool waits : {true, false}) {
    std::string later;
    run(2, [&](Communicator& group) {
      if (group.rank() == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        return;
      }
      Tensor values = filled(10, 1.0);
      {
        const Work work = group.all_reduce(buffer_of(values), ReduceOp::sum(),
                                           {.timeout = std::chrono::milliseconds(100)});
        if (waits) {
          EXPECT_THROW(work.wait(), Timeout);
        } else {
          while (!work.is_completed()) std::this_thread::yield();
        }
      }
      try {
        while (group.describe_progress().find("thread, staged:") != std::string::npos)
          std::this_thread::yield();
        values.sum().item();
      } catch (const Timeout& error) {
        later = error.what();
      }
    });
    EXPECT_EQ(later.empty(), waits) << later;
  }
}

TEST_F(StagedGroup, RefusesToBeCapturedAndSaysWhatToUse) {
  run(2, [](Communicator& group) {
    CommunicatorPtr kept(&group);
    StepGraph step(
        [&](std::span<const Tensor> in) {
          Tensor sum = in[0] + 1.0;
          group.all_reduce(buffer_of(sum)).wait();
          return std::vector{sum};
        },
        {.group = kept});
    const Tensor x = filled(4, 1.0);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(step({x})[0].sum().item(), 2 * 2.0 * 4);
    EXPECT_FALSE(step.replayed());
    EXPECT_THAT(step.fallback_reason(), ::testing::HasSubstr("use nccl, or run the step eagerly"));
  });
}

TEST_F(StagedGroup, MemberThatThrowsEndsTheOthersWithItsMessage) {
  std::string seen;
  EXPECT_THROW(run(3,
                   [&](Communicator& group) {
                     Tensor values = filled(10'000, 1.0);
                     group.all_reduce(buffer_of(values)).wait();
                     if (group.rank() == 2) throw OutOfMemory("no memory for 7 bytes");
                     try {
                       group.all_reduce(buffer_of(values)).wait();
                     } catch (const PeerFailure& error) {
                       if (group.rank() == 0) seen = error.what();
                       throw;
                     }
                   }),
               OutOfMemory);
  EXPECT_THAT(seen, ::testing::HasSubstr("rank 2 failed: no memory for 7 bytes"));
}

void wait_until_set(void* flag) {
  while (!*static_cast<std::atomic<bool>*>(flag))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// The other rank's failure does not wait for this one's device, which may be stuck for good.
TEST_F(StagedGroup, FailureOfAMemberIsHeardWhileTheDeviceHasMuchElseToDo) {
  std::atomic<bool> is_called = false, goes_on = false;
  run(2, [&](Communicator& group) {
    if (group.rank() == 1) {
      while (!is_called) std::this_thread::yield();
      group.abort("rank 1 ran out of memory");
      return;
    }
    const Stream stream(gpu);
    const StreamGuard guard(stream);
    Tensor values = filled(100, 1.0);
    ASSERT_EQ(cudaLaunchHostFunc(static_cast<cudaStream_t>(stream.ref().handle), wait_until_set,
                                 &goes_on),
              cudaSuccess);
    Event reached(gpu);
    reached.record(stream);
    const Work work = group.all_reduce(buffer_of(values));
    is_called = true;
    try {
      work.wait();
      ADD_FAILURE() << "no error";
    } catch (const PeerFailure& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 1 ran out of memory"));
    }
    EXPECT_FALSE(work.is_completed());  // the device has yet to copy from the values
    EXPECT_FALSE(reached.query());
    goes_on = true;
    while (!work.is_completed()) std::this_thread::yield();
    EXPECT_TRUE(reached.query());
  });
}

TEST_F(StagedGroup, MemberThatLeavesFailsWhatNeedsIt) {
  std::string seen;
  std::vector<Tensor> kept{filled(10, 1.0), filled(10, 1.0)};
  EXPECT_THROW(run(2,
                   [&](Communicator& group) {
                     Tensor& values = kept[static_cast<std::size_t>(group.rank())];
                     group.all_reduce(buffer_of(values));  // dropped, and carried out
                     if (group.rank() == 1) return;
                     try {
                       group.all_reduce(buffer_of(values)).wait();
                     } catch (const PeerFailure& error) {
                       seen = error.what();
                       throw;
                     }
                   }),
               PeerFailure);
  EXPECT_THAT(seen, ::testing::HasSubstr("rank 1 left world after 1 collective"));
}

TEST_F(StagedGroup, LeavesInTimeThoughAPeerNeverComes) {
  const auto start = std::chrono::steady_clock::now();
  Tensor values = filled(10, 1.0);
  run(2,
      [&](Communicator& group) {
        if (group.rank() == 0) {
          group.all_reduce(buffer_of(values));
        } else {
          std::this_thread::sleep_for(std::chrono::milliseconds(800));
        }
      },
      {.timeout = std::chrono::minutes(5), .leave_timeout = std::chrono::milliseconds(200)});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_THROW(filled(1, 1.0).item(), PeerFailure);  // nobody was told before
}

}  // namespace
}  // namespace lockstep::comm
