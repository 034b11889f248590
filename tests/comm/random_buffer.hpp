#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/memory.hpp"
#include "lockstep/core/dtype.hpp"

namespace lockstep::comm {

/// Elements in memory of the process or of the group, at any offset. What lies around them in the
/// same allocation is guarded where there is any.
class RandomBuffer {
 public:
  enum class Place { process, group_alone, group_behind_a_page, group_anywhere };

  RandomBuffer(Communicator& group, Place place, std::int64_t count, DType dtype)
      : count_(count), dtype_(dtype), bytes_(static_cast<std::size_t>(count) * size_of(dtype)) {
    constexpr std::size_t page = 4096;
    before_ = place == Place::group_alone           ? 0
              : place == Place::group_behind_a_page ? page
                                                    : 3 * size_of(dtype);
    const bool is_open = place == Place::process || place == Place::group_anywhere;
    after_ = is_open ? 5 * size_of(dtype) : 0;
    const std::size_t all = before_ + bytes_ + after_;
    if (place != Place::process) memory_ = allocate_for(group, all);
    if (!memory_) own_.resize(all);
    begin_ = memory_ ? static_cast<std::byte*>(memory_->data()) : own_.data();
    std::fill_n(begin_, all, guard);
  }

  std::byte* data() { return begin_ + before_; }
  Buffer buffer() { return {data(), count_, dtype_}; }
  ConstBuffer constant() { return {data(), count_, dtype_}; }
  std::size_t bytes() const { return bytes_; }
  /// True if nothing was written outside the elements.
  bool is_guard_whole() const {
    const auto is_whole = [](std::byte byte) { return byte == guard; };
    return std::all_of(begin_, begin_ + before_, is_whole) &&
           std::all_of(begin_ + before_ + bytes_, begin_ + before_ + bytes_ + after_, is_whole);
  }

 private:
  static constexpr std::byte guard{0xA5};
  std::int64_t count_;
  DType dtype_;
  std::size_t bytes_, before_ = 0, after_ = 0;
  IntrusivePtr<Memory> memory_;
  std::vector<std::byte> own_;
  std::byte* begin_ = nullptr;
};

}  // namespace lockstep::comm
