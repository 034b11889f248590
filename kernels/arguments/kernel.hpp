#pragma once

#include "lockstep/runtime/stream.hpp"
#include "runtime/host_graph.hpp"

/// @file
/// How a backend's kernel is called.

namespace lockstep::kernels {

/// A kernel of a backend's table: a function of an argument struct and a stream. While the calling
/// thread records a step on the CPU (HostGraph), the call is noted instead of made.
template <class Arguments>
class Kernel {
 public:
  using Function = void (*)(const Arguments& arguments, StreamRef stream);

  constexpr Kernel() = default;
  constexpr Kernel(Function function) : function_(function) {}

  void operator()(const Arguments& arguments, StreamRef stream) const {
    if (HostGraph* const graph = HostGraph::recording()) [[unlikely]]
      return graph->add(function_, arguments, stream);
    function_(arguments, stream);
  }

 private:
  Function function_ = nullptr;
};

}  // namespace lockstep::kernels
