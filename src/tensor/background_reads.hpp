#pragma once

#include <cstddef>
#include <list>
#include <optional>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Reads of tensors' memory beside those who compute.

namespace lockstep {

/// Memory that is read on a thread or stream of its own, while others go on to compute. As long as
/// this lives, whoever is about to write there waits: ops in place, collectives into
/// `parallel::writable_buffer`, optimizers, averages of weights, launches of captured steps. Only
/// those who write through pointers of their own do not.
class BackgroundRead {
 public:
  /// @param data begins memory that stays allocated.
  BackgroundRead(const void* data, std::size_t bytes);
  BackgroundRead(BackgroundRead&& other) noexcept;
  BackgroundRead& operator=(BackgroundRead&&) = delete;
  /// Ends it, on any thread.
  ~BackgroundRead();

  struct Range {
    const std::byte *begin, *end;
  };

 private:
  std::optional<std::list<Range>::iterator> place_;
};

/// Returns once nobody reads the memory so. Called by whoever writes there, before; `note_write`
/// does it. Any thread.
void wait_for_reads(const Storage& storage);
/// The same for the array of a tensor, which may be undefined.
void wait_for_reads(const Tensor& tensor);

/// For how long the calling thread has waited so in its life, in seconds.
double waited_for_reads() noexcept;

}  // namespace lockstep
