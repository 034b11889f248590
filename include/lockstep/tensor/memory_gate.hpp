#pragma once

/// @file
/// Memory that is not ready to be used when somebody asks for it.

namespace lockstep {

struct TensorImpl;

/// Stands before the memory of a Storage, and is asked each time that somebody wants to know where
/// a tensor's elements lie (Tensor::data_ptr and all that is built on it): ops, copies, optimizers
/// and programs alike, whichever handle or view they have. So what is still being written there, as
/// parameters that ranks gather, is waited for by its first use, and not before.
class MemoryGate {
 public:
  /// Returns once the memory may be used: by the calling thread, on a GPU by what it queues on the
  /// current stream from now on. Called by any thread.
  /// @param tensor may get another array.
  /// @throws what has gone wrong with the memory; its former values are lost then.
  virtual void open(TensorImpl& tensor) = 0;

 protected:
  MemoryGate() = default;
  ~MemoryGate() = default;
};

}  // namespace lockstep
