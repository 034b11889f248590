#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "base/options.hpp"
#include "base/report.hpp"
#include "cublaslt/algorithm.hpp"
#include "cublaslt/product.hpp"
#include "engine/entry.hpp"
#include "engine/host.hpp"
#include "libraries/strided.hpp"
#include "memory/address_space.hpp"
#include "profile/profile.hpp"

using namespace simgpu;
using namespace simgpu::cublaslt;

namespace {

/// alpha and beta: values of the host, or where the device holds them.
struct FactorSource {
  Factors host;
  const void* alpha = nullptr;  ///< set where the values are read in stream order
  const void* beta = nullptr;
};

double read_factor(const void* from, bool wide) {
  return wide ? *static_cast<const double*>(from)
              : static_cast<double>(*static_cast<const float*>(from));
}

/// Everything that a queued product needs.
struct Job {
  std::string name;
  CallSite site;
  Problem problem;
  Operands operands;
  FactorSource factors;
  std::vector<StridedArray> inputs, outputs;
  StridedArray c, workspace;  ///< without data where the call has none
  int device = 0;             ///< the handle's

  Factors current_factors() const {
    if (!factors.alpha) return factors.host;
    return {read_factor(factors.alpha, problem.wide), read_factor(factors.beta, problem.wide)};
  }
  bool run() const;
};

StridedArray array_of(std::string_view name, const void* data, const Matrix& matrix,
                      std::int64_t batch) {
  const auto item = static_cast<std::int64_t>(size_of(matrix.type));
  return {name,
          const_cast<void*>(data),
          size_of(matrix.type),
          {{batch, matrix.batch_stride * item},
           {matrix.rows, matrix.row_stride * item},
           {matrix.columns, matrix.column_stride * item}}};
}

StridedArray vector_of(std::string_view name, const void* data, const Problem& problem,
                       std::int64_t length) {
  const auto item = static_cast<std::int64_t>(size_of(problem.d.type));
  return {name,
          const_cast<void*>(data),
          size_of(problem.d.type),
          {{problem.batch, problem.bias_batch_stride * item}, {length, item}}};
}

StridedArray bytes_of(std::string_view name, const void* data, std::size_t bytes) {
  return {name, const_cast<void*>(data), 1, {{static_cast<std::int64_t>(bytes), 1}}};
}

/// True where beta is not known to be 0: C is an input then.
bool may_read_c(const Job& job) { return job.factors.beta || job.factors.host.beta != 0.0; }

void list_arrays(Job& job) {
  const Problem& problem = job.problem;
  const Operands& operands = job.operands;
  if (job.factors.alpha || job.factors.host.alpha != 0.0) {
    job.inputs.push_back(array_of("A", operands.a, problem.a, problem.batch));
    job.inputs.push_back(array_of("B", operands.b, problem.b, problem.batch));
  }
  if (may_read_c(job)) job.c = array_of("C", operands.c, problem.c, problem.batch);
  job.outputs.push_back(array_of("D", operands.d, problem.d, problem.batch));
  if (problem.reads_bias())
    job.inputs.push_back(vector_of("the bias", operands.bias, problem, problem.rows));
  if (problem.writes_bias())
    job.outputs.push_back(
        vector_of("the bias gradient", operands.bias, problem, problem.bias_gradient_length()));
  if (problem.reads_aux())
    job.inputs.push_back(array_of("the auxiliary input", operands.aux, problem.aux, problem.batch));
  if (problem.writes_aux())
    job.outputs.push_back(
        array_of("the auxiliary output", operands.aux, problem.aux, problem.batch));
  const std::size_t bytes = problem.wide ? sizeof(double) : sizeof(float);
  if (job.factors.alpha) job.inputs.push_back(bytes_of("alpha", job.factors.alpha, bytes));
  if (job.factors.beta) job.inputs.push_back(bytes_of("beta", job.factors.beta, bytes));
}

/// The real kernels would fault or overwrite foreign memory: reported, and not run here.
bool operands_fit(const Job& job) {
  bool fit = true;
  const auto check = [&](const StridedArray& array) {
    fit &= inside_block(job.name, array, job.site) &&
           is_reachable(job.name, array, job.device, job.site);
  };
  for (const auto* arrays : {&job.inputs, &job.outputs})
    for (const StridedArray& array : *arrays) check(array);
  check(job.c);
  check(job.workspace);
  return fit;
}

void report_overlap(const Job& job, const StridedArray& output, const StridedArray& other) {
  if (!overlap(output, other)) return;
  std::ostringstream text;
  text << job.name << ": " << output.name << " and " << other.name
       << " overlap: the product is read and written in any order; C alone may be D, in the same "
          "layout\n  memory  "
       << describe_address(output.data) << "\n  queued by " << describe(job.site);
  report(Finding::race, text.str());
}

/// What is written must be apart from all else: tiles are read after others have been written.
void report_overlaps(const Job& job) {
  for (std::size_t i = 0; i < job.outputs.size(); ++i) {
    const StridedArray& output = job.outputs[i];
    for (const StridedArray& input : job.inputs) report_overlap(job, output, input);
    for (std::size_t j = i + 1; j < job.outputs.size(); ++j)
      report_overlap(job, output, job.outputs[j]);
    report_overlap(job, output, job.workspace);
    // C in place of D; their layouts were compared.
    if (i > 0 || job.c.data != output.data) report_overlap(job, output, job.c);
  }
}

bool Job::run() const {
  for (const StridedArray& array : inputs) expect_initialized(name, array, site);
  if (options().execute != Execute::all) {
    for (const StridedArray& array : outputs) mark_initialized(array);
    return true;
  }
  const Factors values = current_factors();
  if (values.beta != 0.0) expect_initialized(name, c, site);
  compute(problem, operands, values);
  for (const StridedArray& array : outputs) mark_initialized(array);
  return true;
}

const char* name_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_64F: return "f64";
    case CUDA_R_16F: return "f16";
    case CUDA_R_16BF: return "bf16";
    default: return "f32";
  }
}

std::string name_of(const Problem& problem) {
  std::ostringstream text;
  text << RunningCall::of_program() << '(' << name_of(problem.d.type) << ' ' << problem.rows
       << " x " << problem.columns << " x " << problem.depth;
  if (problem.batch > 1) text << ", batch " << problem.batch;
  text << ')';
  return text.str();
}

/// "gelu_aux+bias"; empty for a product alone.
std::string name_of_epilogue(const Problem& problem) {
  std::string text;
  const auto part = [&](bool is_there, const char* name) {
    if (is_there) text += (text.empty() ? "" : "+") + std::string(name);
  };
  part(problem.has(CUBLASLT_EPILOGUE_RELU), "relu");
  part(problem.is_gelu(), problem.writes_aux() ? "gelu_aux" : "gelu");
  part(problem.is_dgelu(), "dgelu");
  part(problem.reads_bias(), "bias");
  part(problem.writes_bias(), "bias_gradient");
  return text;
}

/// Of A, B, C and D: elements that follow one another in memory, and from one such line to the
/// next.
std::pair<std::string, std::string> lines_of(const Problem& problem) {
  std::string widths = "[", distances = "[";
  for (const Matrix* matrix : {&problem.a, &problem.b, &problem.c, &problem.d}) {
    const bool by_columns = matrix->row_stride == 1;
    const char* const end = matrix == &problem.d ? "]" : ",";
    widths += std::to_string(by_columns ? matrix->rows : matrix->columns) + end;
    distances += std::to_string(by_columns ? matrix->column_stride : matrix->row_stride) + end;
  }
  return {widths, distances};
}

profile::Fields profile_of(const Job& job) {
  if (!profile::is_on()) return {};
  const Problem& problem = job.problem;
  std::size_t read = bytes_of(job.c), written = 0;
  for (const StridedArray& array : job.inputs) read += bytes_of(array);
  for (const StridedArray& array : job.outputs) written += bytes_of(array);
  const auto [widths, distances] = lines_of(problem);
  return profile::Fields()
      .add("kind", "product")
      .add("m", problem.rows)
      .add("n", problem.columns)
      .add("k", problem.depth)
      .add("batch", problem.batch)
      .add("a", name_of(problem.a.type))
      .add("b", name_of(problem.b.type))
      .add("c", name_of(problem.c.type))
      .add("d", name_of(problem.d.type))
      .add("compute", problem.wide ? "f64" : "f32")
      .add("epilogue", name_of_epilogue(problem))
      .raw("widths", widths)
      .raw("leading", distances)
      .add("flops", 2.0 * double(problem.rows) * double(problem.columns) * double(problem.depth) *
                        double(problem.batch))
      .add("read_distinct", read)
      .add("write_distinct", written);
}

Alignments alignments_of(const Operands& operands, const MatmulDescription& description) {
  return {.a = alignment_of(operands.a),
          .b = alignment_of(operands.b),
          .c = alignment_of(operands.c),
          .d = alignment_of(operands.d),
          .bias = alignment_of(description.bias),
          .aux = alignment_of(description.aux)};
}

Verdict check_pointers(const Problem& problem, const Operands& operands, const Layouts& layouts,
                       const FactorSource& factors) {
  const auto invalid = [](const char* reason) {
    return Verdict{CUBLAS_STATUS_INVALID_VALUE, reason};
  };
  if (!operands.a || !operands.b || !operands.d) return invalid("a matrix is null");
  if (!operands.c && (factors.beta || factors.host.beta != 0.0))
    return invalid("C is null though beta is not 0");
  if ((problem.reads_bias() || problem.writes_bias()) && !operands.bias)
    return invalid("the epilogue needs a bias pointer");
  if ((problem.reads_aux() || problem.writes_aux()) && !operands.aux)
    return invalid("the epilogue needs an auxiliary pointer");
  const bool in_place = operands.c == operands.d && layouts.c;
  if (in_place && (layouts.c->leading != layouts.d->leading ||
                   layouts.c->batch_stride != layouts.d->batch_stride))
    return invalid("C is D, but their layouts differ");
  return {};
}

/// The caller's algorithm, or one of the library's own choice.
Verdict find_algorithm(const Job& job, const Alignments& alignments,
                       const cublasLtMatmulAlgo_t* given, std::size_t workspace_bytes,
                       Algorithm& algorithm) {
  if (given) {
    algorithm = unpack(*given);
    if (const Verdict verdict = check(algorithm, job.problem, alignments); !verdict) return verdict;
  } else if (!choose(job.problem, alignments, workspace_bytes, 0, algorithm)) {
    return {CUBLAS_STATUS_NOT_SUPPORTED, "no algorithm takes operands so little aligned"};
  }
  if (algorithm.workspace > workspace_bytes)
    return {CUBLAS_STATUS_INVALID_VALUE, "the algorithm needs more workspace than was given"};
  return {};
}

Verdict check_workspace(const void* workspace, const Algorithm& algorithm) {
  if (algorithm.workspace == 0) return {};
  if (!workspace) return {CUBLAS_STATUS_INVALID_VALUE, "the workspace is null"};
  if (alignment_of(workspace) < 256)
    return {CUBLAS_STATUS_INVALID_VALUE, "the workspace is not aligned to 256 bytes"};
  return {};
}

/// A kernel with vector loads or stores of the bias faults where it is less aligned than the
/// pointer that the heuristics saw; no status tells of it.
bool bias_is_aligned(const Job& job, const Algorithm& algorithm) {
  const std::uint32_t actual = alignment_of(job.operands.bias);
  const bool has_bias = job.problem.reads_bias() || job.problem.writes_bias();
  if (!has_bias || actual >= algorithm.align_bias) return true;
  std::ostringstream text;
  text << job.name << ": misaligned address: the bias is aligned to " << actual
       << " bytes, but the algorithm was chosen for " << algorithm.align_bias
       << " (the heuristics read the alignment off CUBLASLT_MATMUL_DESC_BIAS_POINTER)\n  queued by "
       << describe(job.site);
  report(Finding::invalid_launch, text.str());
  return false;
}

/// A handle works on the device that was current when it was made.
bool is_on_device(const Job& job, cudaStream_t stream) {
  int device = job.device;
  if (stream)
    static_cast<void>(device_of_stream(stream, &device));
  else
    device = current_device();
  if (device == job.device) return true;
  report(Finding::invalid_launch, job.name + ": the handle was made for device " +
                                      std::to_string(job.device) +
                                      ", the stream is one of device " + std::to_string(device) +
                                      "\n  queued by " + describe(job.site));
  return false;
}

cublasStatus_t queue(const std::shared_ptr<const Job>& job, cudaStream_t stream) {
  Operation operation;
  operation.name = job->name;
  operation.site = job->site;
  for (const StridedArray& array : job->inputs) add_accesses(operation.accesses, array, false);
  add_accesses(operation.accesses, job->c, false);
  for (const StridedArray& array : job->outputs) add_accesses(operation.accesses, array, true);
  add_accesses(operation.accesses, job->workspace, true);
  operation.profile = profile_of(*job);
  operation.run = [job] { return job->run(); };
  return enqueue(stream, std::move(operation)) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                              : CUBLAS_STATUS_EXECUTION_FAILED;
}

/// The arguments of a call.
struct Call {
  cublasLtHandle_t handle;
  const MatmulDescription* description;
  const void *alpha, *beta;
  Operands operands;
  Layouts layouts;
  const cublasLtMatmulAlgo_t* algorithm;
  void* workspace;
  std::size_t workspace_bytes;
  cudaStream_t stream;
};

Verdict set_factors(const Call& call, Job& job) {
  if (!call.alpha || !call.beta) return {CUBLAS_STATUS_INVALID_VALUE, "alpha or beta is null"};
  const bool wide = job.problem.wide;
  switch (call.description->pointer_mode) {
    case CUBLASLT_POINTER_MODE_HOST:
      job.factors.host = {read_factor(call.alpha, wide), read_factor(call.beta, wide)};
      return {};
    case CUBLASLT_POINTER_MODE_DEVICE: job.factors = {{}, call.alpha, call.beta}; return {};
    default: return {CUBLAS_STATUS_NOT_SUPPORTED, "the pointer mode is not simulated"};
  }
}

/// Everything that the real library checks before it launches a kernel.
Verdict prepare(const Call& call, Job& job, Algorithm& algorithm) {
  if (!call.handle) return {CUBLAS_STATUS_NOT_INITIALIZED, "no handle"};
  if (const Verdict verdict = examine(call.description, call.layouts, job.problem); !verdict)
    return verdict;
  if (const Verdict verdict = set_factors(call, job); !verdict) return verdict;
  job.operands = call.operands;
  job.operands.bias = call.description->bias;
  job.operands.aux = call.description->aux;
  if (const Verdict verdict = check_pointers(job.problem, job.operands, call.layouts, job.factors);
      !verdict)
    return verdict;
  const Alignments alignments = alignments_of(job.operands, *call.description);
  const std::size_t bytes = call.workspace ? call.workspace_bytes : 0;
  if (const Verdict verdict = find_algorithm(job, alignments, call.algorithm, bytes, algorithm);
      !verdict)
    return verdict;
  return check_workspace(call.workspace, algorithm);
}

cublasStatus_t matmul(const Call& call) {
  const auto job = std::make_shared<Job>();
  Algorithm algorithm;
  if (const Verdict verdict = prepare(call, *job, algorithm); !verdict) return refuse(verdict);
  job->name = name_of(job->problem);
  job->site = CallSite::here();
  job->device = device_of(call.handle);
  if (!is_on_device(*job, call.stream)) return CUBLAS_STATUS_EXECUTION_FAILED;
  job->workspace = bytes_of("the workspace", call.workspace, algorithm.workspace);
  list_arrays(*job);
  // As with a real kernel that faults, the call itself succeeds.
  if (!operands_fit(*job) || !bias_is_aligned(*job, algorithm)) return CUBLAS_STATUS_SUCCESS;
  report_overlaps(*job);
  return queue(job, call.stream);
}

}  // namespace

cublasStatus_t cublasLtMatmul(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t computeDesc,
                              const void* alpha, const void* A, cublasLtMatrixLayout_t Adesc,
                              const void* B, cublasLtMatrixLayout_t Bdesc, const void* beta,
                              const void* C, cublasLtMatrixLayout_t Cdesc, void* D,
                              cublasLtMatrixLayout_t Ddesc, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspaceSizeInBytes, cudaStream_t stream) {
  static EntryPoint entry("cublasLtMatmul");
  const Call call{.handle = lightHandle,
                  .description = of(computeDesc),
                  .alpha = alpha,
                  .beta = beta,
                  .operands = {A, B, C, D},
                  .layouts = {of(Adesc), of(Bdesc), of(Cdesc), of(Ddesc)},
                  .algorithm = algo,
                  .workspace = workspace,
                  .workspace_bytes = workspaceSizeInBytes,
                  .stream = stream};
  return entry.call([&] { return matmul(call); });
}
