#include "cudnn/queue.hpp"

#include <memory>
#include <utility>

#include "base/options.hpp"
#include "engine/host_threads.hpp"
#include "libraries/strided.hpp"
#include "lockstep/core/error.hpp"
#include "runtime/cuda/device_guard.hpp"

namespace simgpu::cudnn {
namespace {

constexpr int execution_failed = 8000;  // CUDNN_STATUS_EXECUTION_FAILED

StridedArray array_of(const Operand& operand) {
  const lockstep::ArrayView& view = operand.view;
  const auto item = static_cast<std::int64_t>(lockstep::size_of(view.dtype));
  StridedArray array{.name = operand.name,
                     .data = view.data,
                     .item = static_cast<std::size_t>(item),
                     .extents = {}};
  for (int d = 0; d < view.rank(); ++d)
    array.extents.push_back({view.shape[d], view.strides[d] * item});
  return array;
}

/// What the executor needs of a call.
struct Job {
  std::string name;
  CallSite site;
  std::vector<StridedArray> inputs, outputs;
  std::function<void()> compute;

  bool run() const {
    for (const StridedArray& array : inputs) expect_initialized(name, array, site);
    if (options().execute == Execute::all) compute();
    for (const StridedArray& array : outputs) mark_initialized(array);
    return true;
  }
};

}  // namespace

void queue(std::string name, const std::vector<Operand>& operands, lockstep::StreamRef stream,
           std::function<void()> compute, const profile::Fields& record) {
  const OwnLocks own;
  const profile::HostClockPause simulated;
  auto job = std::make_shared<Job>();
  job->name = std::move(name);
  job->site = CallSite::here();
  job->compute = std::move(compute);
  Operation operation{.name = job->name, .site = job->site, .accesses = {}, .run = {}};
  bool fits = true;
  for (const Operand& operand : operands) {
    if (!operand.view) continue;
    StridedArray array = array_of(operand);
    fits &= inside_block(job->name, array, job->site);
    add_accesses(operation.accesses, array, operand.written);
    (operand.written ? job->outputs : job->inputs).push_back(std::move(array));
  }
  if (!fits) return;
  if (profile::is_on()) {
    std::size_t read = 0, written = 0;
    for (const StridedArray& array : job->inputs) read += bytes_of(array);
    for (const StridedArray& array : job->outputs) written += bytes_of(array);
    operation.profile = record;
    operation.profile.add("read_distinct", read).add("write_distinct", written);
  }
  operation.run = [job] { return job->run(); };
  const lockstep::CudaDeviceGuard guard(stream.device.index);
  const cudaError_t status =
      enqueue(static_cast<cudaStream_t>(stream.handle), std::move(operation));
  if (status != cudaSuccess)
    throw lockstep::CudnnError("Graph::execute", execution_failed, cudaGetErrorString(status));
}

}  // namespace simgpu::cudnn
