#pragma once

#include <atomic>
#include <string>
#include <utility>

#include "lockstep/runtime/device_runtime.hpp"

/// @file
/// A device that is always a little behind.

namespace lockstep::testing {

/// Events are done when they were asked for the third time. For any number of threads.
class DelayedRuntime final : public DeviceRuntime {
 public:
  int device_count() override { return 1; }
  std::string device_name(int) override { return "delayed"; }
  std::pair<std::size_t, std::size_t> memory_info(int) override { return {0, 0}; }
  StreamRef default_stream(Device device) override { return {device, nullptr}; }
  StreamRef create_stream(Device device, StreamPriority) override { return {device, nullptr}; }
  void destroy_stream(StreamRef) noexcept override {}
  void synchronize(StreamRef) override {}
  void* create_event(Device, bool) override {
    ++live_events;
    return new std::atomic<int>(0);
  }
  void destroy_event(Device, void* event) noexcept override {
    --live_events;
    delete static_cast<std::atomic<int>*>(event);
  }
  void record_event(void*, StreamRef) override {}
  void wait_event(void*, StreamRef) override {}
  bool query_event(void* event) override { return ++*static_cast<std::atomic<int>*>(event) > 2; }
  void synchronize_event(void* event) override { *static_cast<std::atomic<int>*>(event) = 2; }
  float elapsed_ms(void*, void*) override { return 0; }
  void copy(void*, const void*, std::size_t, StreamRef) override {}
  void fill_bytes(void*, int, std::size_t, StreamRef) override {}

  std::atomic<int> live_events = 0;
};

}  // namespace lockstep::testing
