#pragma once

#include <functional>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/core/macros.hpp"
#include "lockstep/runtime/stream.hpp"

/// @file
/// The CPU's graph: calls that were recorded in the place of being made.

namespace lockstep {

/// What a thread would have done on the CPU, to be done many times: the CPU's stand-in for a CUDA
/// graph. Kernels, copies and collectives ask for the graph that their thread records, and add
/// themselves to it instead of running.
class HostGraph {
 public:
  using Call = std::function<void()>;

  /// The graph that the calling thread records, or null.
  static HostGraph* recording() noexcept { return recording_; }
  /// Makes it the calling thread's one; null ends that.
  static void record(HostGraph* graph) noexcept { recording_ = graph; }

  void add(Call call) { calls_.push_back(std::move(call)); }

  /// A kernel with its arguments, which are kept: with what is in their lists, too, where they have
  /// `lists()`. @throws Unsupported for one of a GPU, whose work is no part of this.
  template <class Arguments>
  LOCKSTEP_COLD void add(void (*kernel)(const Arguments&, StreamRef), const Arguments& arguments,
                         StreamRef stream) {
    check_is_host(stream);
    Arguments kept = arguments;
    if constexpr (requires { kept.lists(); })
      std::apply([&](auto*... list) { (keep(*list), ...); }, kept.lists());
    calls_.emplace_back([kernel, kept, stream] { kernel(kept, stream); });
  }

  /// Makes the calls, in the order in which they were added. @throws what one of them throws; the
  /// rest is not made.
  void run() const {
    for (const Call& call : calls_) call();
  }

 private:
  /// Lets a list name a copy of what it names.
  template <class T>
  void keep(std::span<const T>& list) {
    const auto copy = std::make_shared<const std::vector<T>>(list.begin(), list.end());
    kept_.push_back(copy);
    list = *copy;
  }
  static void check_is_host(StreamRef stream);

  std::vector<Call> calls_;
  std::vector<std::shared_ptr<const void>> kept_;  // what lists of arguments name

  static inline constinit thread_local HostGraph* recording_ = nullptr;
};

}  // namespace lockstep
