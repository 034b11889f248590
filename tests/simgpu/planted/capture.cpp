#include <cuda_runtime_api.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/tensor/factories.hpp"
#include "simgpu/planted/programs.hpp"
#include "simgpu/planted/switch.hpp"

/// @file
/// A step that is captured once and replayed.

namespace planted {
namespace {

using namespace lockstep;

const TensorOptions f32{.dtype = DType::f32, .device = cuda(0)};

void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess)
    throw CudaError(call, static_cast<int>(status), cudaGetErrorString(status));
}

/// Values, and their squares in memory that is there before the capture.
struct Step {
  Tensor x = ones({256}, f32), squares;
  void prepare() { squares = empty({256}, f32); }
  void run() {
    if (!squares.defined()) prepare();  // an allocation while the stream captures
    squares.copy_(x);
    squares.mul_(x);
  }
};

void capture_and_replay(Step& step, StreamRef stream) {
  auto* const handle = static_cast<cudaStream_t>(stream.handle);
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(handle, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  step.run();
  check(cudaStreamEndCapture(handle, &graph), "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  for (int replay = 0; replay < 3; ++replay)
    check(cudaGraphLaunch(executable, handle), "cudaGraphLaunch");
  synchronize(stream);
  check(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
  check(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

}  // namespace

void allocation_during_capture() {
  Step step;
  synchronize(current_stream(cuda(0)));
  const Stream stream(cuda(0));  // for which the pool has no memory yet
  const StreamGuard guard(stream);
  if (!is_planted("allocation-during-capture")) step.prepare();
  try {
    capture_and_replay(step, stream);
  } catch (const CudaError&) {
    if (!is_planted("allocation-during-capture")) throw;
    cudaGraph_t graph = nullptr;
    static_cast<void>(cudaStreamEndCapture(static_cast<cudaStream_t>(stream.ref().handle), &graph));
    static_cast<void>(cudaGetLastError());
  }
}

}  // namespace planted
