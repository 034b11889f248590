#include "backend/cuda/lt_plan.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <mutex>
#include <unordered_map>

#include "backend/cuda/log_once.hpp"
#include "backend/cuda/tuned_products.hpp"
#include "core/alike_on_all_ranks.hpp"
#include "cuda/scratch.hpp"
#include "lockstep/core/deterministic.hpp"
#include "lockstep/core/thread_kept.hpp"
#include "lockstep/runtime/event.hpp"
#include "runtime/cuda/check.hpp"
#include "runtime/cuda/device_guard.hpp"

namespace lockstep::cuda_kernels {
namespace {

using kernels::Epilogue;

/// What `fusible` asks of a bias.
constexpr std::uintptr_t bias_alignment = 16;
/// Large enough for split reductions; NVIDIA's advice for Hopper.
constexpr std::size_t workspace_limit = std::size_t{32} << 20;
/// Kernels that the heuristics are asked for.
constexpr int most_candidates = 8;
/// Multiply-adds from which on a product is worth measuring: some microseconds on an H100.
constexpr std::int64_t tuned_size = std::int64_t{1} << 30;

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw CudaError(call, static_cast<int>(status), cublasLtGetStatusString(status));
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f64: return CUDA_R_64F;
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    default: LOCKSTEP_THROW(Unsupported, "gemm: dtype ", dtype, " on device cuda");
  }
}

bool is_double(DType dtype) { return dtype == DType::f64; }

cublasComputeType_t compute_type(const LtProblem& problem) {
  if (is_double(problem.dtype)) return CUBLAS_COMPUTE_64F;
  return problem.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

cublasLtEpilogue_t native_gelu_bias(bool keeps_aux) {
  if (keeps_aux) return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  return CUBLASLT_EPILOGUE_GELU_BIAS;
}

cublasLtEpilogue_t native(const LtProblem& problem) {
  switch (problem.epilogue) {
    case Epilogue::bias: return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::gelu_bias: return native_gelu_bias(problem.keeps_aux);
    case Epilogue::dgelu: return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::bias_gradient: return CUBLASLT_EPILOGUE_BGRADB;
    default: return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

/// The device's cuBLASLt handle, which any number of threads may share. Never destroyed: the
/// driver may be gone by the time static objects are.
cublasLtHandle_t handle_of(int device) {
  static std::mutex mutex;
  static std::array<cublasLtHandle_t, 64> handles{};
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles.at(static_cast<std::size_t>(device));
  if (!handle) check(cublasLtCreate(&handle), "cublasLtCreate");
  return handle;
}

template <class T>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute,
         const T& value) {
  check(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value),
        "cublasLtMatmulDescSetAttribute");
}

template <class T>
void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
  check(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value),
        "cublasLtMatrixLayoutSetAttribute");
}

template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
        "cublasLtMatmulPreferenceSetAttribute");
}

std::int64_t depth_of(const LtProblem& p) { return p.transpose_a ? p.a.rows : p.a.columns; }

std::string describe_problem(const LtProblem& p) {
  constexpr const char* epilogues[] = {"", " with bias", " with gelu and bias", " with dgelu",
                                       " with the gradient of a bias"};
  return lockstep::detail::concat(
      "a product of ", p.dtype, " into ", p.out_dtype, ", ", p.d.rows, " x ", p.d.columns,
      ", depth ", depth_of(p), ", batch ", p.batch, epilogues[static_cast<std::size_t>(p.epilogue)],
      ", aligned to ", int{p.align_a}, ", ", int{p.align_b}, " and ", int{p.align_d}, " bytes");
}

/// All that the choice of a kernel depends on, but for the device.
std::string name_of(const LtProblem& p) {
  std::string name = lockstep::detail::concat(p.dtype, p.tf32 ? " tf32 " : " ", p.out_dtype, ' ',
                                              p.transpose_a ? 't' : 'n', p.transpose_b ? 't' : 'n',
                                              p.accumulate ? " add" : "", p.keeps_aux ? " aux" : "",
                                              " epilogue ", static_cast<int>(p.epilogue));
  for (const LtMatrix* each : {&p.a, &p.b, &p.c, &p.d})
    name += lockstep::detail::concat(' ', each->rows, 'x', each->columns, '/', each->leading, '+',
                                     each->batch_stride);
  name += lockstep::detail::concat(" batch ", p.batch, " aligned");
  for (const auto align : {p.align_a, p.align_b, p.align_c, p.align_d, p.align_aux})
    name += lockstep::detail::concat(' ', align);
  return name;
}

/// The device's name and the version of cuBLASLt.
std::string name_of_device(int device) {
  cudaDeviceProp properties{};
  LOCKSTEP_CUDA_CALL(cudaGetDeviceProperties, &properties, device);
  return lockstep::detail::concat(properties.name, " cuBLASLt ", cublasLtGetVersion());
}

bool is_captured(StreamRef stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  LOCKSTEP_CUDA_CALL(cudaStreamIsCapturing, static_cast<cudaStream_t>(stream.handle), &status);
  return status != cudaStreamCaptureStatusNone;
}

/// The kernel says that it cannot, though the heuristics proposed it. Nothing is queued then.
bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH;
}

/// Bytes from a matrix's first element to behind its last, of all products of a batch.
std::size_t extent(const LtMatrix& matrix, std::int64_t batch, DType dtype) {
  const std::int64_t elements =
      (batch - 1) * matrix.batch_stride + (matrix.columns - 1) * matrix.leading + matrix.rows;
  return static_cast<std::size_t>(elements) * size_of(dtype);
}

struct ProblemHash {
  std::size_t operator()(const LtProblem& p) const {
    std::uint64_t hash = 0xCBF29CE484222325ull;
    const auto mix = [&hash](auto value) {
      hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x100000001B3ull;
      hash ^= hash >> 29;
    };
    for (const LtMatrix* matrix : {&p.a, &p.b, &p.c, &p.d}) {
      mix(matrix->rows);
      mix(matrix->columns);
      mix(matrix->leading);
      mix(matrix->batch_stride);
    }
    mix(p.batch);
    mix(p.transpose_a | p.transpose_b << 1 | p.accumulate << 2 | p.keeps_aux << 3 | p.tf32 << 4);
    mix(p.device << 16 | static_cast<int>(p.epilogue) << 8 | static_cast<int>(p.out_dtype) << 4 |
        static_cast<int>(p.dtype));
    mix(p.align_a | p.align_b << 9 | p.align_c << 18);
    mix(p.align_d | p.align_aux << 9);
    return static_cast<std::size_t>(hash);
  }
};

}  // namespace

LtPlan::MatrixLayout LtPlan::layout_of(const LtMatrix& matrix, DType dtype, std::int64_t batch) {
  cublasLtMatrixLayout_t raw = nullptr;
  check(cublasLtMatrixLayoutCreate(&raw, data_type(dtype), static_cast<std::uint64_t>(matrix.rows),
                                   static_cast<std::uint64_t>(matrix.columns), matrix.leading),
        "cublasLtMatrixLayoutCreate");
  MatrixLayout layout(raw);
  set(raw, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(batch));
  set(raw, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix.batch_stride);
  return layout;
}

LtPlan::LtPlan(const LtProblem& problem)
    : problem_(problem),
      a_(layout_of(problem.a, problem.dtype, problem.batch)),
      b_(layout_of(problem.b, problem.dtype, problem.batch)),
      c_(layout_of(problem.c, problem.out_dtype, problem.batch)),
      d_(layout_of(problem.d, problem.out_dtype, problem.batch)) {
  describe();
  choose();
}

void LtPlan::describe() {
  const bool wide = is_double(problem_.dtype);
  const cudaDataType_t type = data_type(problem_.out_dtype);
  cublasLtMatmulDesc_t raw = nullptr;
  check(cublasLtMatmulDescCreate(&raw, compute_type(problem_), wide ? CUDA_R_64F : CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  description_.reset(raw);
  const auto transpose = [](bool yes) { return yes ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(raw, CUBLASLT_MATMUL_DESC_TRANSA, transpose(problem_.transpose_a));
  set(raw, CUBLASLT_MATMUL_DESC_TRANSB, transpose(problem_.transpose_b));
  set(raw, CUBLASLT_MATMUL_DESC_EPILOGUE, native(problem_));
  // The heuristics read the expected alignment off pointers; they do not follow them.
  if (uses_bias(problem_.epilogue)) {
    set(raw, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
    set(raw, CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<void*>(bias_alignment));
  }
  if (problem_.keeps_aux || problem_.epilogue == Epilogue::dgelu) {
    set(raw, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, problem_.d.rows);
    set(raw, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, problem_.aux_batch_stride);
    // Its type stays D's: where one is said, some kernels refuse it when they run.
    set(raw, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
        reinterpret_cast<void*>(static_cast<std::uintptr_t>(problem_.align_aux)));
  }
}

void LtPlan::choose() {
  cublasLtMatmulPreference_t raw = nullptr;
  check(cublasLtMatmulPreferenceCreate(&raw), "cublasLtMatmulPreferenceCreate");
  const std::unique_ptr<void, Destroy<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>>
      preference(raw);
  set(raw, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_limit);
  // Parts of a sum are added in the type that it is computed in, never in D's of 16 bits.
  set(raw, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::uint32_t{problem_.align_a});
  set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, std::uint32_t{problem_.align_b});
  set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, std::uint32_t{problem_.align_c});
  set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::uint32_t{problem_.align_d});
  candidates_.resize(most_candidates);
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_of(problem_.device), description_.get(), a_.get(), b_.get(), c_.get(), d_.get(), raw,
      most_candidates, candidates_.data(), &found);
  // Any other status means a description that is wrong: to go another way would hide it.
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, "cublasLtMatmulAlgoGetHeuristic");
  candidates_.resize(static_cast<std::size_t>(found));
  std::erase_if(candidates_, [](const auto& each) { return each.state != CUBLAS_STATUS_SUCCESS; });
  // Epilogues have kernels of the library's own in their stead, so that nobody needs a warning.
  if (candidates_.empty())
    backend::log_once(LogLevel::info, "cuBLASLt has no kernel for ", describe_problem(problem_),
                      ": ", cublasLtGetStatusString(status));
}

cublasStatus_t LtPlan::multiply(const cublasLtMatmulHeuristicResult_t& candidate,
                                const LtOperands& operands, StreamRef stream) const {
  const Scratch workspace(candidate.workspaceSize, stream);
  const float single[] = {1.0F, static_cast<float>(operands.beta)};
  const double twice[] = {1.0, operands.beta};
  const bool wide = is_double(problem_.dtype);
  const void* alpha = wide ? static_cast<const void*>(&twice[0]) : &single[0];
  const void* beta = wide ? static_cast<const void*>(&twice[1]) : &single[1];
  return cublasLtMatmul(handle_of(problem_.device), description_.get(), alpha, operands.a, a_.get(),
                        operands.b, b_.get(), beta, operands.c, c_.get(), operands.d, d_.get(),
                        &candidate.algo, workspace.data(), candidate.workspaceSize,
                        static_cast<cudaStream_t>(stream.handle));
}

/// Of three runs behind one another, behind one that is not measured; infinity where it fails.
double LtPlan::milliseconds(const cublasLtMatmulHeuristicResult_t& candidate,
                            const LtOperands& operands, StreamRef stream) const {
  constexpr int runs = 3;
  Event before(stream.device, true), after(stream.device, true);
  for (int i = 0; i <= runs; ++i) {
    if (i == 1) before.record(stream);
    if (multiply(candidate, operands, stream) != CUBLAS_STATUS_SUCCESS)
      return std::numeric_limits<double>::infinity();
  }
  after.record(stream);
  after.synchronize();
  return static_cast<double>(before.elapsed_ms(after)) / runs;
}

bool LtPlan::take_known(const std::string& name) {
  const auto known = TunedProducts::of_process()->find(name);
  if (!known) return false;
  const auto at = std::ranges::find_if(candidates_, [&](const auto& each) {
    return std::memcmp(&each.algo, &*known, sizeof *known) == 0;
  });
  if (at == candidates_.end()) return false;
  fastest_ = static_cast<std::size_t>(at - candidates_.begin());
  return true;
}

void LtPlan::tune(const LtOperands& operands, StreamRef stream) {
  TunedProducts* const tuned = TunedProducts::of_process();
  const std::int64_t size = problem_.d.rows * problem_.d.columns * problem_.batch;
  tuned_ = true;
  if (!tuned || candidates_.size() < 2 || size * depth_of(problem_) < tuned_size) return;
  const std::string name = name_of_device(problem_.device) + ", " + name_of(problem_);
  if (take_known(name)) return;
  tuned_ = !is_captured(stream);
  if (!tuned_) return;
  // Each run must read the same: what is added to stays as it is.
  const bool in_place = problem_.accumulate && operands.c == operands.d;
  const Scratch out(in_place ? extent(problem_.d, problem_.batch, problem_.out_dtype) : 0, stream);
  LtOperands measured = operands;
  if (in_place) measured.d = out.data();
  std::vector<double> times(candidates_.size(), std::numeric_limits<double>::infinity());
  for (int round = 0; round < 2; ++round)
    for (std::size_t i = 0; i < candidates_.size(); ++i)
      times[i] = std::min(times[i], milliseconds(candidates_[i], measured, stream));
  const auto fastest = std::ranges::min_element(times);
  if (*fastest == std::numeric_limits<double>::infinity()) return;  // `run` says why
  fastest_ = static_cast<std::size_t>(fastest - times.begin());
  tuned->keep(name, candidates_[fastest_].algo, 1e3 * times[fastest_], 1e3 * times[0]);
}

bool LtPlan::run(const LtOperands& operands, StreamRef stream) {
  if (operands.bias) set(description_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  if (operands.aux)
    set(description_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.aux);
  // What is fastest need not be so twice, nor on all ranks: where bits count, the heuristics
  // decide.
  const bool by_time = !deterministic_algorithms() && !AlikeOnAllRanks::is_active();
  if (by_time && !tuned_) tune(operands, stream);
  while (!candidates_.empty()) {
    const std::size_t chosen = by_time ? fastest_ : 0;
    const cublasStatus_t status = multiply(candidates_[chosen], operands, stream);
    if (!is_refusal(status)) {
      check(status, "cublasLtMatmul");
      return true;
    }
    backend::log_once(LogLevel::warning, "cuBLASLt's kernel for ", describe_problem(problem_),
                      " does not run: ", cublasLtGetStatusString(status),
                      "; the next one is taken");
    candidates_.erase(candidates_.begin() + static_cast<std::ptrdiff_t>(chosen));
    fastest_ = 0;
  }
  return false;
}

// Per thread: a plan's descriptors hold the pointers of the call in progress.
LtPlan& lt_plan(const LtProblem& problem) {
  thread_local detail::KeptByThread<std::unordered_map<LtProblem, LtPlan, ProblemHash>> kept;
  auto& plans = kept.get();
  if (const auto known = plans.find(problem); known != plans.end()) return known->second;
  return plans.try_emplace(problem, problem).first->second;
}

}  // namespace lockstep::cuda_kernels
