#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>

#include "lockstep/memory/allocator.hpp"

/// @file
/// What a pool must hold to, whatever it does inside.

namespace lockstep::testing {

/// The blocks that are out, and the memory of the upstream. Thread-safe.
class BlockModel {
 public:
  /// Memory came from the upstream, or went back.
  void grow(const void* data, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    faults_ += !insert(segments_, data, bytes);
    held_ += bytes;
  }
  void shrink(const void* data, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto [begin, end] = range(data, bytes);
    // None of it may be out.
    const auto after = out_.lower_bound(begin);
    if (after != out_.end() && after->first < end) ++faults_;
    if (after != out_.begin() && std::prev(after)->second > begin) ++faults_;
    faults_ += segments_.erase(begin) != 1;
    held_ -= bytes;
  }
  /// A block came out, or is about to go back.
  void allocated(const MemoryBlock& block, std::size_t asked) {
    const std::lock_guard lock(mutex_);
    faults_ += block.size < asked;
    const auto [begin, end] = range(block.data, block.size);
    const auto segment = segments_.upper_bound(begin);
    if (segment == segments_.begin() || std::prev(segment)->second < end) ++faults_;
    faults_ += !insert(out_, block.data, block.size);
    live_ += block.size;
  }
  void freed(const MemoryBlock& block) {
    const std::lock_guard lock(mutex_);
    faults_ += out_.erase(range(block.data, block.size).first) != 1;
    live_ -= block.size;
  }

  /// Overlaps, blocks outside of any segment, blocks smaller than was asked for.
  int faults() const { return faults_; }
  std::size_t held_bytes() const { return held_; }
  std::size_t live_bytes() const { return live_; }

 private:
  using Ranges = std::map<std::uintptr_t, std::uintptr_t>;
  static std::pair<std::uintptr_t, std::uintptr_t> range(const void* data, std::size_t bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    return {begin, begin + bytes};
  }
  static bool insert(Ranges& ranges, const void* data, std::size_t bytes) {
    const auto [begin, end] = range(data, bytes);
    const auto after = ranges.upper_bound(begin);
    if (after != ranges.end() && after->first < end) return false;
    if (after != ranges.begin() && std::prev(after)->second > begin) return false;
    ranges.emplace(begin, end);
    return true;
  }

  std::mutex mutex_;
  Ranges segments_, out_;
  std::size_t held_ = 0, live_ = 0;
  int faults_ = 0;
};

/// Memory of another upstream, which a model hears of.
template <class U>
struct ModelledUpstream {
  U upstream;
  BlockModel* model;
  void* allocate(std::size_t bytes) {
    void* data = upstream.allocate(bytes);
    if (data) model->grow(data, bytes);
    return data;
  }
  void deallocate(void* data, std::size_t bytes) noexcept {
    model->shrink(data, bytes);
    upstream.deallocate(data, bytes);
  }
};

}  // namespace lockstep::testing
