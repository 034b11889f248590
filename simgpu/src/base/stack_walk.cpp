#include "base/stack_walk.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include <pthread.h>
#include <unwind.h>

namespace simgpu {
namespace {

struct Frame {
  std::uintptr_t place;    // where the stack was in it, above the frame that it called
  std::uintptr_t address;  // of return, into it
};

/// The stack of a thread, as it was last walked.
struct Walk {
  std::array<Frame, 128> frames;
  std::size_t count = 0;
  bool is_whole = false;  // as far as the first frame of the thread
};

struct Bounds {
  std::uintptr_t begin, end;
};

/// Those of the calling thread's stack. Code may run on others: fibers, signal handlers.
Bounds stack_of_thread() noexcept {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {1, 1};
  void* begin = nullptr;
  std::size_t size = 0;
  pthread_attr_getstack(&attributes, &begin, &size);
  pthread_attr_destroy(&attributes);
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  return {address, address + size};
}

constinit thread_local Walk last{.frames = {}};
constinit thread_local Bounds own_stack{0, 0};

// Where a frame ends, below the one that called it, lies the return address.
#ifdef __x86_64__
constexpr bool has_addresses_between_frames = true;
#else
constexpr bool has_addresses_between_frames = false;
#endif

class Walker {
 public:
  explicit Walker(std::size_t wanted) noexcept : wanted_(wanted) {
    if (own_stack.end == 0) own_stack = stack_of_thread();
    _Unwind_Backtrace(&Walker::visit, this);
    std::copy_n(walk_.frames.begin(), walk_.count, last.frames.begin());
    last.count = walk_.count;
    last.is_whole = walk_.is_whole;
  }

  const Walk& walk() const noexcept { return walk_; }

 private:
  static _Unwind_Reason_Code visit(_Unwind_Context* context, void* walker) noexcept {
    return static_cast<Walker*>(walker)->take({_Unwind_GetCFA(context), _Unwind_GetIP(context)});
  }

  _Unwind_Reason_Code take(Frame frame) noexcept {
    if (frame.address == 0) {
      walk_.is_whole = true;
      return _URC_END_OF_STACK;
    }
    if (goes_on_as_last(frame)) return _URC_END_OF_STACK;
    walk_.frames[walk_.count++] = frame;
    return walk_.count < walk_.frames.size() ? _URC_NO_REASON : _URC_END_OF_STACK;
  }

  /// Takes over a frame that the last walk came by, and those around it.
  bool goes_on_as_last(Frame frame) noexcept {
    if (!has_addresses_between_frames) return false;
    while (next_ < last.count && last.frames[next_].place < frame.place) ++next_;
    if (next_ == last.count || last.frames[next_].place != frame.place ||
        last.frames[next_].address != frame.address)
      return false;
    const std::size_t common = last.count - next_, room = walk_.frames.size() - walk_.count;
    if (!last.is_whole && walk_.count + common < wanted_) return false;
    for (std::size_t i = next_; i < last.count; ++i)
      if (!is_return_address(last.frames[i], i == next_)) return false;
    std::copy_n(last.frames.begin() + static_cast<std::ptrdiff_t>(next_), std::min(common, room),
                walk_.frames.begin() + static_cast<std::ptrdiff_t>(walk_.count));
    walk_.count += std::min(common, room);
    walk_.is_whole = last.is_whole && common <= room;
    return true;
  }

  /// Whether a frame was called into at an address still; the innermost was seen to be.
  static bool is_return_address(Frame frame, bool is_seen) noexcept {
    if (frame.place < own_stack.begin + sizeof(void*) || frame.place > own_stack.end) return false;
    return is_seen ||
           *reinterpret_cast<const std::uintptr_t*>(frame.place - sizeof(void*)) == frame.address;
  }

  const std::size_t wanted_;
  std::size_t next_ = 0;
  Walk walk_;
};

}  // namespace

std::size_t walk_stack(std::span<void*> frames) noexcept {
  const Walker walker(frames.size());
  const std::size_t count = std::min(walker.walk().count, frames.size());
  for (std::size_t i = 0; i < count; ++i)
    frames[i] = reinterpret_cast<void*>(walker.walk().frames[i].address);
  return count;
}

}  // namespace simgpu
