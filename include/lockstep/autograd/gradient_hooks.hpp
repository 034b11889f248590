#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/core/intrusive_ptr.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// The hooks of the tensors that one node made; users add them by Tensor::register_hook.

namespace lockstep::autograd {

/// A list of hooks, run in the order in which they were added. Handles of hooks may outlive the
/// node: then it is empty.
class GradientHooks final : public RefCounted {
 public:
  /// Gets a complete gradient; a defined result takes its place.
  using Hook = std::function<Tensor(const Tensor&)>;

  /// Adds a hook for one of the node's outputs and returns a number to remove it by.
  std::uint64_t add(std::uint32_t output, Hook hook);
  /// Removes a hook; unknown numbers are ignored.
  void remove(std::uint64_t id) noexcept;
  /// Removes all.
  void clear() noexcept { std::exchange(hooks_, {}); }
  /// True if there is none.
  bool empty() const noexcept { return hooks_.empty(); }
  /// A number that others than those which are there would not have; 0: there is none.
  std::uint64_t signature() const noexcept {
    return signature_of(hooks_, [](const Entry& entry) { return entry.id; });
  }
  /// The same of any hooks that have numbers, which ascend.
  template <class Hooks, class Id>
  static std::uint64_t signature_of(const Hooks& hooks, const Id& id) noexcept {
    std::uint64_t signature = 0;
    for (const auto& each : hooks) signature = signature * 1'000'003 + id(each) + 1;
    return signature;
  }
  /// Lets the hooks see, and replace, the gradients of the node's outputs; undefined ones are left
  /// out. @throws InvalidArgument for a result of another shape, dtype or device.
  void run(std::span<Tensor> gradients);

 private:
  struct Entry {
    std::uint64_t id;
    std::uint32_t output;
    std::shared_ptr<Hook> hook;  // shared: a hook may remove itself while it runs
  };
  std::vector<Entry> hooks_;
  std::uint64_t next_id_ = 0;
};

}  // namespace lockstep::autograd
