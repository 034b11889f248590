#pragma once

#include <span>
#include <vector>

#include "lockstep/core/dtype.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Casts of parameters to the dtype of an autocast scope, kept while the scope lasts, so that a
/// weight that several ops use (or one op again and again) is converted once.

namespace lockstep::autograd {

/// Keeps casts of the calling thread until the end of the outermost scope, which frees them.
class CastCacheScope {
 public:
  /// @param enabled false: ops inside convert anew each time.
  explicit CastCacheScope(bool enabled) noexcept;
  CastCacheScope(const CastCacheScope&) = delete;
  CastCacheScope& operator=(const CastCacheScope&) = delete;
  ~CastCacheScope();

  /// True if the calling thread is inside a scope, and the innermost one is enabled.
  static bool active() noexcept;

 private:
  bool previous_;
};

/// An operand in another dtype, not recorded. That of a leaf that has or had a gradient is taken
/// from the cache where one is active; it is converted again once the leaf was written to, has
/// another array, or is used on another stream.
Tensor cast_operand(const Tensor& operand, DType dtype);

/// Has the first `cast_operand` of one of the leaves in that dtype cast all of them that are f32,
/// by one launch on a GPU, until the end of the outermost scope; nothing where no cache is active.
/// Those that a collective still writes by then are left to the ops that wait for them.
/// @param dtype bf16 or f16.
void cast_together(std::span<const Tensor> leaves, DType dtype);

/// Those of the tensors that the calling thread's scopes have cast.
std::vector<Tensor> cast_among(std::span<const Tensor> tensors);

}  // namespace lockstep::autograd
