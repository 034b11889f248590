#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "checkpoint/device_copier.hpp"
#include "checkpoint/throttle.hpp"
#include "lockstep/runtime/event.hpp"
#include "lockstep/tensor/tensor.hpp"
#include "memory/reclaimable_memory.hpp"
#include "tensor/background_reads.hpp"

/// @file
/// The part of a snapshot that is copied beside training.

namespace lockstep::checkpoint {

/// Copies tensors on a thread of its own, one after the other, as they were when they were added:
/// whoever writes to one meanwhile waits until it is copied (BackgroundRead). On a GPU with memory
/// to spare all are first copied within it, behind the work of its current stream: writers wait for
/// no more than that, which is done before the next backward comes to them.
///
/// The training thread adds and starts; any thread may wait.
class LaterCopies {
 public:
  /// @param share that copies within a GPU may take of the memory that training has never had
  /// there: should it come to need more than the rest, it waits for the copies to be gone.
  explicit LaterCopies(double share = 0.5) : share_(share) {}
  LaterCopies(const LaterCopies&) = delete;
  LaterCopies& operator=(const LaterCopies&) = delete;
  /// Waits for the thread.
  ~LaterCopies();

  /// Takes some bytes of a contiguous tensor, `from` bytes behind its first. On a GPU: as the work
  /// that its current stream has now leaves them.
  /// @param to behind those of the copies before.
  /// @param is_pinned of the whole of it, in one piece, if the tensor is on a GPU.
  void add(const Tensor& tensor, std::uint64_t from, std::span<std::byte> to,
           bool is_pinned = false);
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
  /// A device that anything was copied from; nothing before.
  std::optional<Device> device() const;
  /// Whether what was started last was first copied within its device.
  bool copied_within() const { return copied_within_; }

 private:
  struct Read {  // of memory that is training's
    IntrusivePtr<Storage> memory;
    BackgroundRead read;
  };
  struct Copy {
    IntrusivePtr<Storage> memory;
    const std::byte* from;
    std::span<std::byte> to;
    std::unique_ptr<Read> original;  // null once it has been copied within its device
    bool is_pinned;
  };
  /// Tensors that are copied within their device, until it has done that.
  struct Within {
    Event copied;
    std::vector<std::unique_ptr<Read>> originals;
  };
  void copy_within(Device device);
  void wait_until_copied();
  DeviceCopier& copier_of(Device device);
  void run() noexcept;
  void copy_into_pinned();
  void copy(const Copy& each);
  void reach(const std::byte* end);

  const double share_;
  std::vector<Copy> copies_;
  std::vector<Within> within_;
  bool copied_within_ = false;
  std::size_t most_within_ = 0;               // bytes of a device
  std::list<ReclaimableMemory> reclaimable_;  // until the thread has ended
  std::vector<std::pair<Device, std::unique_ptr<DeviceCopier>>> devices_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable progressed_;
  const std::byte* copied_ = nullptr;  // all before it; null: all
  std::exception_ptr failure_;
};

}  // namespace lockstep::checkpoint
