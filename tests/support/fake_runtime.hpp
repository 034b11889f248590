#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/device_runtime.hpp"

/// @file
/// A device whose work is done when the test says so.

namespace lockstep::testing {

/// Streams count the work queued on them; a test finishes it. Events remember a count. One call can
/// be told to fail. Not for several threads.
class FakeRuntime final : public DeviceRuntime {
 public:
  /// Work queued on a stream, and how much of it is done.
  struct FakeStream {
    int queued = 0;
    int done = 0;
  };
  struct FakeEvent {
    const FakeStream* stream = nullptr;
    int position = 0;
  };

  FakeRuntime() = default;
  ~FakeRuntime() override {
    for (FakeEvent* event : events) delete event;
  }

  /// Puts one more piece of work on a stream.
  static void queue_work(StreamRef stream) { ++of(stream).queued; }
  /// Does all that is queued on a stream.
  static void finish(StreamRef stream) { of(stream).done = of(stream).queued; }
  /// Lets the call after `calls` more that can fail throw.
  void fail_after(int calls) { calls_until_failure_ = calls; }

  int device_count() override { return 1; }
  std::string device_name(int) override { return "fake"; }
  std::pair<std::size_t, std::size_t> memory_info(int) override { return {0, 0}; }

  StreamRef default_stream(Device device) override { return {device, &default_}; }
  StreamRef create_stream(Device device, StreamPriority) override {
    may_fail("create_stream");
    ++live_streams;
    kept_.push_back(std::make_unique<FakeStream>());
    return {device, kept_.back().get()};
  }
  void destroy_stream(StreamRef) noexcept override { --live_streams; }
  void synchronize(StreamRef stream) override {
    may_fail("synchronize");
    ++host_waits;
    finish(stream);
  }

  void* create_event(Device, bool) override {
    may_fail("create_event");
    return *events.insert(new FakeEvent()).first;
  }
  void destroy_event(Device, void* event) noexcept override {
    events.erase(static_cast<FakeEvent*>(event));
    delete static_cast<FakeEvent*>(event);
  }
  void record_event(void* event, StreamRef stream) override {
    may_fail("record_event");
    *static_cast<FakeEvent*>(event) = {&of(stream), of(stream).queued};
  }
  void wait_event(void*, StreamRef) override { may_fail("wait_event"); }
  bool query_event(void* event) override {
    may_fail("query_event");
    const auto& mark = *static_cast<FakeEvent*>(event);
    return !mark.stream || mark.stream->done >= mark.position;
  }
  void synchronize_event(void* event) override {
    may_fail("synchronize_event");
    ++host_waits;
    const auto& mark = *static_cast<FakeEvent*>(event);
    if (mark.stream) const_cast<FakeStream*>(mark.stream)->done = mark.position;
  }
  float elapsed_ms(void*, void*) override { return 0; }
  void copy(void*, const void*, std::size_t, StreamRef) override {}
  void fill_bytes(void*, int, std::size_t, StreamRef) override {}

  std::set<FakeEvent*> events;  ///< the living ones
  int live_streams = 0;
  int host_waits = 0;

 private:
  static FakeStream& of(StreamRef stream) { return *static_cast<FakeStream*>(stream.handle); }
  void may_fail(const char* call) {
    if (calls_until_failure_ >= 0 && calls_until_failure_-- == 0)
      throw std::runtime_error(std::string(call) + " was told to fail");
  }

  FakeStream default_;
  std::vector<std::unique_ptr<FakeStream>> kept_;
  int calls_until_failure_ = -1;
};

}  // namespace lockstep::testing
