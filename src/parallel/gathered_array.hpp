#pragma once

#include <cstdint>

#include "lockstep/comm/work.hpp"
#include "lockstep/core/intrusive_ptr.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// The memory that parameters have while they are whole.

namespace lockstep::parallel {

/// An array into which a collective gathers, and which goes when parameters do not want it any
/// more. Until then a step that is captured is refused to use it: launches would look where it lay.
/// On a GPU each stream that uses it waits for the collective, and it stays until all of them are
/// done with it. Views of it keep the memory.
class GatheredArray {
 public:
  /// Nothing of it is written yet.
  GatheredArray(std::int64_t numel, TensorOptions options);
  GatheredArray(const GatheredArray&) = delete;
  GatheredArray& operator=(const GatheredArray&) = delete;
  /// Only who has views uses it from now on.
  ~GatheredArray();

  const Tensor& tensor() const noexcept { return tensor_; }
  /// What writes it.
  void gather(comm::Work work);
  /// Returns once it may be used; on a GPU by the current stream. @throws what the collective has
  /// failed with.
  void wait();
  /// Whether somebody has written to it since it was gathered.
  bool is_written() const noexcept { return tensor_.impl().storage->version() != 0; }

 private:
  class Gate;

  IntrusivePtr<Gate> gate_;
  Tensor tensor_;
};

}  // namespace lockstep::parallel
