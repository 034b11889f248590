#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <utility>
#include <vector>

#include "lockstep/runtime/device_runtime.hpp"
#include "runtime/step_recording.hpp"

/// @file
/// Returned blocks that work on other streams may still use.

namespace lockstep::detail {

/// Holds blocks, each behind one event a stream. While any thread of the process captures a step,
/// no event is recorded: on a stream that takes part it would go to the graph, and could not be
/// asked.
template <class Block>
class WaitingBlocks {
 public:
  /// @param runtime gives the events; must outlive this.
  explicit WaitingBlocks(DeviceRuntime& runtime) : runtime_(runtime) {}
  WaitingBlocks(const WaitingBlocks&) = delete;
  WaitingBlocks& operator=(const WaitingBlocks&) = delete;
  ~WaitingBlocks() {
    for (const Entry& entry : entries_) destroy(entry);
  }

  /// True if no block waits.
  bool empty() const noexcept { return entries_.empty(); }

  /// Keeps a block until the work that is on the streams now is done. Where events cannot be had,
  /// waits for that work instead. @return true if the block is free already; should even waiting
  /// fail, the block is lost, because the work may run on.
  bool add(Block* block, const std::vector<StreamRef>& streams) noexcept {
    Entry entry{block, {}, {}};
    try {
      entry.unmarked = streams;
      mark(entry);
      entries_.push_back(std::move(entry));
      return false;
    } catch (const std::exception&) {
      destroy(entry);
      return synchronize(streams);
    }
  }

  /// Hands the blocks whose streams are past the mark to `give_back`.
  /// @throws what the runtime throws; blocks not handed over by then go on waiting.
  template <class GiveBack>
  void reclaim(GiveBack&& give_back) {
    for (std::size_t i = 0; i < entries_.size();) {
      if (!reached(entries_[i])) {
        ++i;
        continue;
      }
      destroy(entries_[i]);
      give_back(entries_[i].block);
      entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  /// Blocks the host until all marks are reached. Blocks that have none yet go on waiting.
  void synchronize() {
    for (Entry& entry : entries_) mark(entry);
    for (const Entry& entry : entries_)
      for (const Mark& mark : entry.marks) runtime_.synchronize_event(mark.event);
  }

 private:
  struct Mark {
    Device device;
    void* event;
  };
  struct Entry {
    Block* block;
    std::vector<Mark> marks;
    std::vector<StreamRef> unmarked;
  };

  void mark(Entry& entry) {
    if (entry.unmarked.empty()) return;
    StepRecording::unless_any_is_open([&] {
      for (; !entry.unmarked.empty(); entry.unmarked.pop_back()) {
        const StreamRef stream = entry.unmarked.back();
        entry.marks.reserve(entry.marks.size() + 1);
        entry.marks.push_back({stream.device, runtime_.create_event(stream.device, false)});
        runtime_.record_event(entry.marks.back().event, stream);
      }
    });
  }

  bool reached(Entry& entry) {
    mark(entry);
    return entry.unmarked.empty() && std::ranges::all_of(entry.marks, [this](const Mark& mark) {
             return runtime_.query_event(mark.event);
           });
  }

  bool synchronize(const std::vector<StreamRef>& streams) noexcept {
    try {
      for (const StreamRef stream : streams) runtime_.synchronize(stream);
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  void destroy(const Entry& entry) noexcept {
    for (const Mark& mark : entry.marks) runtime_.destroy_event(mark.device, mark.event);
  }

  DeviceRuntime& runtime_;
  std::vector<Entry> entries_;
};

}  // namespace lockstep::detail
