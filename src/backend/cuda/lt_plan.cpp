#include "backend/cuda/lt_plan.hpp"

#include <array>
#include <mutex>
#include <unordered_map>

#include "backend/cuda/log_once.hpp"
#include "cuda/scratch.hpp"
#include "runtime/cuda/device_guard.hpp"

namespace lockstep::cuda_kernels {
namespace {

using kernels::Epilogue;

/// What `fusible` asks of a bias.
constexpr std::uintptr_t bias_alignment = 16;
/// Large enough for split reductions; NVIDIA's advice for Hopper.
constexpr std::size_t workspace_limit = std::size_t{32} << 20;

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

cublasLtEpilogue_t gelu_bias(bool keeps_aux) {
  if (keeps_aux) return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  return CUBLASLT_EPILOGUE_GELU_BIAS;
}

cublasLtEpilogue_t native(const LtProblem& problem) {
  switch (problem.epilogue) {
    case Epilogue::bias: return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::gelu_bias: return gelu_bias(problem.keeps_aux);
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

std::string describe_problem(const LtProblem& p) {
  constexpr const char* epilogues[] = {"", " with bias", " with gelu and bias", " with dgelu",
                                       " with the gradient of a bias"};
  return lockstep::detail::concat(
      "a product of ", p.dtype, " into ", p.out_dtype, ", ", p.d.rows, " x ", p.d.columns,
      ", depth ", p.transpose_a ? p.a.rows : p.a.columns, ", batch ", p.batch,
      epilogues[static_cast<std::size_t>(p.epilogue)], ", aligned to ", int{p.align_a}, ", ",
      int{p.align_b}, " and ", int{p.align_d}, " bytes");
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
    mix(p.transpose_a | p.transpose_b << 1 | p.accumulate << 2 | p.keeps_aux << 3);
    mix(p.device << 16 | static_cast<int>(p.epilogue) << 8 | static_cast<int>(p.out_dtype) << 4 |
        static_cast<int>(p.dtype));
    mix(p.align_a | p.align_b << 5 | p.align_c << 10 | p.align_d << 15 | p.align_aux << 20);
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
  check(cublasLtMatmulDescCreate(&raw, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                 wide ? CUDA_R_64F : CUDA_R_32F),
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
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_of(problem_.device), description_.get(), a_.get(),
                                     b_.get(), c_.get(), d_.get(), raw, 1, &best, &found);
  // Any other status means a description that is wrong: to go another way would hide it.
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, "cublasLtMatmulAlgoGetHeuristic");
  supported_ = status == CUBLAS_STATUS_SUCCESS && found > 0 && best.state == CUBLAS_STATUS_SUCCESS;
  if (!supported_)
    backend::log_once("cuBLASLt has no kernel for ", describe_problem(problem_), ": ",
                      cublasLtGetStatusString(status));
  algorithm_ = best.algo;
  workspace_ = best.workspaceSize;
}

void LtPlan::run(const LtOperands& operands, StreamRef stream) {
  if (operands.bias) set(description_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  if (operands.aux)
    set(description_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.aux);
  const Scratch workspace(workspace_, stream);
  const float single[] = {1.0F, static_cast<float>(operands.beta)};
  const double twice[] = {1.0, operands.beta};
  const bool wide = is_double(problem_.dtype);
  const void* alpha = wide ? static_cast<const void*>(&twice[0]) : &single[0];
  const void* beta = wide ? static_cast<const void*>(&twice[1]) : &single[1];
  check(cublasLtMatmul(handle_of(problem_.device), description_.get(), alpha, operands.a, a_.get(),
                       operands.b, b_.get(), beta, operands.c, c_.get(), operands.d, d_.get(),
                       &algorithm_, workspace.data(), workspace_,
                       static_cast<cudaStream_t>(stream.handle)),
        "cublasLtMatmul");
}

// Per thread: a plan's descriptors hold the pointers of the call in progress.
LtPlan& lt_plan(const LtProblem& problem) {
  thread_local std::unordered_map<LtProblem, LtPlan, ProblemHash> plans;
  if (const auto known = plans.find(problem); known != plans.end()) return known->second;
  return plans.try_emplace(problem, problem).first->second;
}

}  // namespace lockstep::cuda_kernels
