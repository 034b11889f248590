#pragma once

#include <cuda_runtime_api.h>

#include "lockstep/core/error.hpp"
#include "lockstep/runtime/stream.hpp"

/// @file
/// Work that is captured once and replayed.

namespace planted {

/// @throws lockstep::CudaError for a status that is none of success.
inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess)
    throw lockstep::CudaError(call, static_cast<int>(status), cudaGetErrorString(status));
}

/// A captured graph.
class Graph {
 public:
  /// Captures what `body` queues on the stream. @throws lockstep::CudaError where that is refused.
  template <class Body>
  Graph(lockstep::StreamRef stream, const Body& body) : stream_(handle(stream)) {
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    try {
      body();
    } catch (...) {
      static_cast<void>(cudaStreamEndCapture(stream_, &graph));
      static_cast<void>(cudaGetLastError());
      throw;
    }
    check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&executable_, graph, 0), "cudaGraphInstantiate");
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { static_cast<void>(cudaGraphExecDestroy(executable_)); }

  void replay() const { check(cudaGraphLaunch(executable_, stream_), "cudaGraphLaunch"); }

 private:
  static cudaStream_t handle(lockstep::StreamRef stream) {
    return static_cast<cudaStream_t>(stream.handle);
  }

  cudaStream_t stream_;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace planted
