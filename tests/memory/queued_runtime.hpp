#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/device_runtime.hpp"

/// @file
/// A device whose streams do their work when the test lets them, in any order between streams.

namespace lockstep::testing {

/// Streams are queues of functions. Not for several threads.
class QueuedRuntime final : public DeviceRuntime {
 public:
  /// Queues work on a stream.
  static void queue(StreamRef stream, std::function<void()> work) {
    queue_of(stream).push_back({nullptr, std::move(work)});
  }
  /// Does the next piece of work of one of the streams that can go on. False if there is none.
  bool step(std::minstd_rand& random) {
    const std::size_t count = streams_.size(), first = random() % count;
    for (std::size_t i = 0; i < count; ++i)
      if (run_one(*streams_[(first + i) % count])) return true;
    return false;
  }
  /// Does all that is queued.
  void finish() {
    for (auto& stream : streams_) synchronize({cpu, stream.get()});
  }

  int device_count() override { return 1; }
  std::string device_name(int) override { return "queued"; }
  std::pair<std::size_t, std::size_t> memory_info(int) override { return {0, 0}; }
  StreamRef default_stream(Device device) override { return {device, streams_.front().get()}; }
  StreamRef create_stream(Device device, StreamPriority) override {
    streams_.push_back(std::make_unique<Queue>());
    return {device, streams_.back().get()};
  }
  void destroy_stream(StreamRef) noexcept override {}
  void synchronize(StreamRef stream) override {
    while (!queue_of(stream).empty())
      if (!run_one(queue_of(stream))) run_any();
  }

  void* create_event(Device, bool) override { return new Event(std::make_shared<bool>(true)); }
  void destroy_event(Device, void* event) noexcept override { delete static_cast<Event*>(event); }
  void record_event(void* event, StreamRef stream) override {
    auto done = std::make_shared<bool>(false);
    *static_cast<Event*>(event) = done;
    queue(stream, [done] { *done = true; });
  }
  void wait_event(void* event, StreamRef stream) override {
    queue_of(stream).push_back({*static_cast<Event*>(event), [] {}});
  }
  bool query_event(void* event) override { return **static_cast<Event*>(event); }
  void synchronize_event(void* event) override {
    ++host_waits;
    while (!query_event(event)) run_any();
  }
  float elapsed_ms(void*, void*) override { return 0; }
  void copy(void*, const void*, std::size_t, StreamRef) override {}
  void fill_bytes(void* to, int value, std::size_t bytes, StreamRef stream) override {
    queue(stream, [=] { std::memset(to, value, bytes); });
  }

  int host_waits = 0;

 private:
  using Event = std::shared_ptr<bool>;
  struct Work {
    Event waits_for;
    std::function<void()> run;
  };
  using Queue = std::deque<Work>;

  static Queue& queue_of(StreamRef stream) { return *static_cast<Queue*>(stream.handle); }
  static bool run_one(Queue& queue) {
    if (queue.empty() || (queue.front().waits_for && !*queue.front().waits_for)) return false;
    const auto run = std::move(queue.front().run);
    queue.pop_front();
    run();
    return true;
  }
  void run_any() {
    for (auto& stream : streams_)
      if (run_one(*stream)) return;
  }

  std::vector<std::unique_ptr<Queue>> streams_;
};

}  // namespace lockstep::testing
