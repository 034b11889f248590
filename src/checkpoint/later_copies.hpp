#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "checkpoint/device_copier.hpp"
#include "checkpoint/throttle.hpp"
#include "lockstep/tensor/tensor.hpp"
#include "tensor/background_reads.hpp"

/// @file
/// The part of a snapshot that is copied beside training.

namespace lockstep::checkpoint {

/// Copies tensors on a thread of its own, one after the other, as they were when they were added:
/// whoever writes to one meanwhile waits until it is copied (BackgroundRead). On a GPU with memory
/// to spare nobody waits: there all are first copied within it, in order with what it computes.
///
/// The training thread adds and starts; any thread may wait.
class LaterCopies {
 public:
  /// @param share of what a GPU's driver has left that copies within it may take: whatever training
  /// comes to need meanwhile may have the rest.
  explicit LaterCopies(double share = 0.5) : share_(share) {}
  LaterCopies(const LaterCopies&) = delete;
  LaterCopies& operator=(const LaterCopies&) = delete;
  /// Waits for the thread.
  ~LaterCopies();

  /// Takes some bytes of a contiguous tensor, `from` bytes behind its first. On a GPU: as the work
  /// that its current stream has now leaves them.
  /// @param to behind those of the copies before.
  void add(const Tensor& tensor, std::uint64_t from, std::span<std::byte> to);
  /// Begins to copy, at the priority of the calling thread, which will wait for it before long.
  /// Nothing is added before `finish`.
  /// @param throttle hears how long that took the processor.
  /// @throws std::system_error if there is no thread to be had.
  void start(Throttle& throttle);
  /// Forgets what was added and not started.
  void discard() noexcept;
  /// Returns once all that belongs before `end` is copied. @throws what copying failed with.
  void wait_until(const std::byte* end);
  /// Waits until the thread has ended.
  void finish();

 private:
  struct Copy {
    IntrusivePtr<Storage> memory;
    const std::byte* from;
    std::span<std::byte> to;
    std::optional<BackgroundRead> read;  // of memory that is training's
  };
  void copy_within(Device device);
  DeviceCopier& copier_of(Device device);
  void run() noexcept;
  void copy(const Copy& each);
  void reach(const std::byte* end);

  const double share_;
  std::vector<Copy> copies_;
  std::vector<std::pair<Device, std::unique_ptr<DeviceCopier>>> devices_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable progressed_;
  const std::byte* copied_ = nullptr;  // all before it; null: all
  std::exception_ptr failure_;
};

}  // namespace lockstep::checkpoint
