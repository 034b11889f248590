#include "backend/cuda/cudnn/plan.hpp"

#include "backend/cuda/cudnn/target.hpp"
#include "backend/cuda/log_once.hpp"
#include "backend/cuda/plan_failure.hpp"
#include "lockstep/core/thread_kept.hpp"
#include "runtime/cuda/device_guard.hpp"

namespace lockstep::backend::cudnn {
namespace {

void check(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw CudnnError(call, static_cast<int>(status), cudnnGetErrorString(status));
}

/// Owns a handle. Handles belong to a thread: their stream is part of their state.
class Handle {
 public:
  Handle() { check(cudnnCreate(&handle_), "cudnnCreate"); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { static_cast<void>(cudnnDestroy(handle_)); }
  cudnnHandle_t get() const { return handle_; }

 private:
  cudnnHandle_t handle_ = nullptr;
};

frontend::DataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f64: return frontend::DataType_t::DOUBLE;
    case DType::f32: return frontend::DataType_t::FLOAT;
    case DType::bf16: return frontend::DataType_t::BFLOAT16;
    case DType::f16: return frontend::DataType_t::HALF;
    default: LOCKSTEP_THROW(Unsupported, "cuDNN: dtype ", dtype, " on device cuda");
  }
}

PlanFailure failure_of(frontend::error_code_t code) {
  using Code = frontend::error_code_t;
  switch (code) {
    case Code::GRAPH_NOT_SUPPORTED: return PlanFailure::graph;
    case Code::HEURISTIC_QUERY_FAILED: return PlanFailure::engines;
    case Code::GRAPH_EXECUTION_PLAN_CREATION_FAILED: return PlanFailure::plans;
    case Code::CUDNN_BACKEND_API_FAILED: return PlanFailure::call;
    default: return PlanFailure::other;
  }
}

// False where cuDNN lacks an engine; what else is wrong is an error of ours, and must not send
// callers another way in silence. By value, as the status' getters are not const.
bool succeeded(frontend::error_t status) {
  if (status.is_good()) return true;
  if (!lacks_engine(failure_of(status.get_code()), status.get_message()))
    throw CudnnError("to plan a graph", static_cast<int>(status.get_code()), status.get_message());
  log_once(LogLevel::warning, "cuDNN has no engine for a problem: ", status.get_message());
  return false;
}

std::vector<std::int64_t> to_vector(const Dims& dims) { return {dims.begin(), dims.end()}; }

}  // namespace

cudnnHandle_t handle_on(StreamRef stream) {
  thread_local detail::KeptByThread<std::map<int, Handle>> handles;
  const cudnnHandle_t handle = handles.get()[stream.device.index].get();
  check(cudnnSetStream(handle, static_cast<cudaStream_t>(stream.handle)), "cudnnSetStream");
  return handle;
}

Plan::Plan(std::unique_ptr<Graph> graph, const Requirements& requirements,
           const PlanTarget& target) {
  if (!succeeded(build(*graph, requirements, target))) return;
  workspace_ = graph->get_workspace_size();
  graph_ = std::move(graph);
}

frontend::error_t Plan::build(Graph& graph, const Requirements& requirements,
                              const PlanTarget& target) {
  const cudnnHandle_t handle = target.handle();
  target.prepare(graph);
  if (auto status = graph.validate(); status.is_bad()) return status;
  if (auto status = graph.build_operation_graph(handle); status.is_bad()) return status;
  using Mode = frontend::HeurMode_t;
  if (auto status = graph.create_execution_plans({Mode::A, Mode::FALLBACK}); status.is_bad())
    return status;
  using Note = frontend::NumericalNote_t;
  // Never: f32 rounded to f16, which ends at 65,504, and parts of sums in 16 bits.
  graph.deselect_numeric_notes({Note::DOWN_CONVERT_INPUTS, Note::REDUCED_PRECISION_REDUCTION});
  if (requirements.full_precision) graph.deselect_numeric_notes({Note::TENSOR_CORE});
  if (requirements.deterministic) graph.deselect_numeric_notes({Note::NONDETERMINISTIC});
  if (auto status = graph.check_support(handle); status.is_bad()) return status;
  return graph.build_plans(handle);
}

void Plan::run(std::unordered_map<std::int64_t, void*> arrays, StreamRef stream) {
  const CudaDeviceGuard guard(stream.device.index);
  const cuda_kernels::Scratch workspace(static_cast<std::size_t>(workspace_), stream);
  auto status = graph_->execute(handle_on(stream), arrays, workspace.data());
  if (status.is_bad())
    throw CudnnError("Graph::execute", static_cast<int>(status.get_code()), status.get_message());
}

std::unique_ptr<Graph> new_graph(DType dtype) {
  const auto compute =
      dtype == DType::f64 ? frontend::DataType_t::DOUBLE : frontend::DataType_t::FLOAT;
  auto graph = std::make_unique<Graph>();
  graph->set_io_data_type(data_type(dtype))
      .set_intermediate_data_type(compute)
      .set_compute_data_type(compute);
  return graph;
}

Tensor_attributes describe(const ArrayView& view, std::int64_t uid) {
  return Tensor_attributes()
      .set_uid(uid)
      .set_data_type(data_type(view.dtype))
      .set_alignment(alignment(view))
      .set_dim(to_vector(view.shape))
      .set_stride(to_vector(view.strides));
}

void write_to(const std::shared_ptr<Tensor_attributes>& tensor, const ArrayView& view,
              std::int64_t uid) {
  tensor->set_output(true)
      .set_uid(uid)
      .set_data_type(data_type(view.dtype))
      .set_alignment(alignment(view))
      .set_dim(to_vector(view.shape))
      .set_stride(to_vector(view.strides));
}

}  // namespace lockstep::backend::cudnn
