#pragma once

#include <cstdint>
#include <utility>

#include "lockstep/core/intrusive_ptr.hpp"

/// @file
/// How a hook of a tensor is taken away again.

namespace lockstep {

/// Names a hook that `Tensor::register_hook` has added. Copies name the same hook; none of them
/// keeps the graph alive.
class HookHandle {
 public:
  /// Names no hook.
  HookHandle() = default;
  /// Names one hook of a list.
  HookHandle(IntrusivePtr<RefCounted> hooks, std::uint64_t id) noexcept
      : hooks_(std::move(hooks)), id_(id) {}

  /// Removes the hook, from within itself too. Nothing happens if it is gone, alone or with its
  /// graph.
  void remove() noexcept;

 private:
  IntrusivePtr<RefCounted> hooks_;  // an autograd::GradientHooks, which does not hold its node
  std::uint64_t id_ = 0;
};

}  // namespace lockstep
