#pragma once

#include <vector>

#include "lockstep/comm/work.hpp"
#include "lockstep/core/intrusive_ptr.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Waits for gathered parameters at their first use.

namespace lockstep::parallel {

/// Stands before an array while a collective writes it. On the CPU the first use waits for that; on
/// a GPU each stream that uses it does, until the collective has ended; a captured step waits
/// before its launches. Any thread may ask.
class GatherGate final {
 public:
  /// @param array stays where it is. @param parts ranges of it that have a Storage each: whoever
  /// uses one waits, too.
  GatherGate(Tensor array, std::vector<IntrusivePtr<Storage>> parts);
  GatherGate(const GatherGate&) = delete;
  GatherGate& operator=(const GatherGate&) = delete;
  /// Waits, and takes no notice of a failure, which whoever uses the group next hears of.
  ~GatherGate();

  /// What writes the array from now on.
  void close(comm::Work work);
  /// Waits, if that was not done; throws what the collective has failed with, each time.
  void wait();

 private:
  class Gate;
  IntrusivePtr<Gate> gate_;
};

}  // namespace lockstep::parallel
