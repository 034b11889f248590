#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <utility>

/// @file
/// Where pools get their memory from.

namespace lockstep {

/// A source of large pieces of memory. `allocate` returns null when there is no more (the pool then
/// flushes its caches and tries again); other failures throw.
template <class T>
concept Upstream = requires(T upstream, std::size_t bytes, void* data) {
  { upstream.allocate(bytes) } -> std::same_as<void*>;
  { upstream.deallocate(data, bytes) }
  noexcept;
};

/// An upstream whose memory is made of pages: what it gave may grow at its end, and goes back page
/// by page. `extend` gives more right behind memory that ends at `end`, or says that there is none.
/// `deallocate` takes any whole pages, and does not wait for work that may use them: whoever calls
/// it has. All that `allocate` gives are whole pages.
template <class T>
concept GrowableUpstream = Upstream<T> && requires(T upstream, std::size_t bytes, void* end) {
  { upstream.page_bytes() } -> std::convertible_to<std::size_t>;
  { upstream.extend(end, bytes) } -> std::same_as<bool>;
};

/// Host memory aligned to 4 KiB.
class HostUpstream {
 public:
  /// Memory of `bytes` bytes, or null.
  void* allocate(std::size_t bytes);
  /// Gives it back.
  void deallocate(void* data, std::size_t bytes) noexcept;
};

/// Device memory straight from the driver, on one GPU. Defined in builds with CUDA.
class CudaUpstream {
 public:
  /// @param device index of the GPU.
  explicit CudaUpstream(int device) : device_(device) {}
  /// Memory of `bytes` bytes, or null when the device is full. @throws CudaError otherwise.
  void* allocate(std::size_t bytes);
  /// Gives it back. The device may block until its work is done.
  void deallocate(void* data, std::size_t bytes) noexcept;

 private:
  int device_;
};

/// Page-locked host memory, for asynchronous copies. Defined in builds with CUDA.
class PinnedUpstream {
 public:
  /// Memory of `bytes` bytes, or null. @throws CudaError.
  void* allocate(std::size_t bytes);
  /// Gives it back.
  void deallocate(void* data, std::size_t bytes) noexcept;
};

}  // namespace lockstep
