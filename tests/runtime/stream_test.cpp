#include "lockstep/runtime/stream.hpp"

#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"
#include "lockstep/runtime/event.hpp"
#include "runtime/runtimes.hpp"
#include "support/fake_runtime.hpp"

namespace lockstep {
namespace {

TEST(CpuStream, RunsEverythingAtOnce) {
  const Stream stream(cpu, StreamPriority::high);
  DeviceRuntime& runtime = device_runtime(DeviceType::cpu);
  std::vector<int> from{1, 2, 3}, to(3);
  runtime.copy(to.data(), from.data(), 3 * sizeof(int), stream);
  EXPECT_EQ(to, from);
  runtime.fill_bytes(to.data(), 0, sizeof(int), stream);
  EXPECT_EQ(to.front(), 0);
  stream.synchronize();
  EXPECT_EQ(stream.ref(), current_stream(cpu));
}

TEST(CpuStream, AcceptsEmptyCopiesFromNowhere) {
  DeviceRuntime& runtime = device_runtime(DeviceType::cpu);
  runtime.copy(nullptr, nullptr, 0, {});
  runtime.fill_bytes(nullptr, 0, 0, {});
}

TEST(CpuEvent, IsReachedBeforeAndAfterRecording) {
  Event event(cpu);
  EXPECT_TRUE(event.query());
  event.record({});
  event.wait({});
  event.synchronize();
  EXPECT_TRUE(event.query());
}

TEST(CpuEvent, TellsTimeThatDoesNotRunBackwards) {
  Event begin(cpu, true), end(cpu, true);
  begin.record({});
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  end.record({});
  EXPECT_GE(begin.elapsed_ms(end), 2.0F);
}

/// A fake stands in for the GPUs.
class FakeDevice : public ::testing::Test {
 protected:
  void SetUp() override { previous_ = replace_device_runtime(DeviceType::cuda, &runtime); }
  void TearDown() override {
    replace_device_runtime(DeviceType::cuda, previous_);
    EXPECT_EQ(runtime.live_streams, 0);
    EXPECT_TRUE(runtime.events.empty());
  }
  testing::FakeRuntime runtime;

 private:
  DeviceRuntime* previous_ = nullptr;
};

TEST_F(FakeDevice, StreamMovesItsHandle) {
  Stream first(cuda(0));
  const StreamRef ref = first;
  Stream second(std::move(first));
  EXPECT_EQ(second.ref(), ref);
  Stream third(cuda(0));
  third = std::move(second);
  EXPECT_EQ(third.ref(), ref);
  EXPECT_EQ(runtime.live_streams, 2);  // the assigned-over one lives in `second`
}

TEST_F(FakeDevice, EventMovesItsHandle) {
  Event first(cuda(0));
  Event second(std::move(first));
  first = std::move(second);
  EXPECT_EQ(runtime.events.size(), 1u);
  EXPECT_TRUE(first.query());
}

TEST_F(FakeDevice, EventIsReachedOnceTheStreamIs) {
  const Stream stream(cuda(0));
  Event event(cuda(0));
  testing::FakeRuntime::queue_work(stream);
  event.record(stream);
  EXPECT_FALSE(event.query());
  testing::FakeRuntime::finish(stream);
  EXPECT_TRUE(event.query());
}

TEST_F(FakeDevice, GuardsNestAndRestore) {
  const Stream outer(cuda(0)), inner(cuda(0)), elsewhere(cuda(1));
  const StreamRef before = current_stream(cuda(0));
  {
    const StreamGuard guard(outer);
    const StreamGuard other_device(elsewhere);
    EXPECT_EQ(current_stream(cuda(0)), outer.ref());
    EXPECT_EQ(current_stream(cuda(1)), elsewhere.ref());
    try {
      const StreamGuard nested(inner);
      EXPECT_EQ(current_stream(cuda(0)), inner.ref());
      throw std::runtime_error("leaves the scope");
    } catch (const std::runtime_error&) {
    }
    EXPECT_EQ(current_stream(cuda(0)), outer.ref());
  }
  EXPECT_EQ(current_stream(cuda(0)), before);
}

TEST_F(FakeDevice, GuardsConcernTheirOwnThread) {
  const Stream stream(cuda(0));
  const StreamGuard guard(stream);
  std::thread([] { EXPECT_EQ(current_stream(cuda(0)), default_stream(cuda(0))); }).join();
}

TEST_F(FakeDevice, GuardsCanChooseTheDriversOwnDefaultStream) {
  EXPECT_NE(current_stream(cuda(0)).handle, nullptr);
  {
    const StreamGuard guard(StreamRef{cuda(0)});
    EXPECT_EQ(current_stream(cuda(0)).handle, nullptr);
    const Stream inner(cuda(0));
    const StreamGuard nested(inner);
    EXPECT_EQ(current_stream(cuda(0)), inner.ref());
  }
  EXPECT_EQ(current_stream(cuda(0)), default_stream(cuda(0)));
}

// Handles are used again, and may still carry the mark of their former user.
TEST_F(FakeDevice, EventThatIsNotRecordedIsReachedWhateverItsHandleMarks) {
  const Stream stream(cuda(0));
  Event event(cuda(0)), other(cuda(0));
  testing::FakeRuntime::queue_work(stream);
  for (testing::FakeRuntime::FakeEvent* each : runtime.events) runtime.record_event(each, stream);
  EXPECT_TRUE(event.query());
  event.synchronize();
  EXPECT_EQ(runtime.host_waits, 0);
  EXPECT_THROW(static_cast<void>(event.elapsed_ms(other)), InvalidArgument);
}

TEST_F(FakeDevice, CurrentStreamRefusesIndicesThatNoMachineHas) {
  EXPECT_THROW(current_stream(cuda(64)), InvalidArgument);
  EXPECT_THROW(StreamGuard(StreamRef{cuda(64)}), InvalidArgument);
}

/// What a class that needs several handles looks like.
struct SeveralHandles {
  Stream compute{cuda(0)};
  Event ready{cuda(0)};
  Stream copies{cuda(0), StreamPriority::high};
  Event done{cuda(0)};
};

TEST_F(FakeDevice, NothingLeaksWhereverConstructionFails) {
  for (int successes = 0; successes < 4; ++successes) {
    runtime.fail_after(successes);
    EXPECT_THROW(SeveralHandles(), std::runtime_error) << successes;
    EXPECT_EQ(runtime.live_streams, 0) << successes;
    EXPECT_TRUE(runtime.events.empty()) << successes;
  }
  const SeveralHandles complete;
  EXPECT_EQ(runtime.live_streams, 2);
}

}  // namespace
}  // namespace lockstep
