#include "cublaslt/problem.hpp"

#include <bit>
#include <limits>
#include <utility>

namespace simgpu::cublaslt {
namespace {

Verdict invalid(const char* reason) { return {CUBLAS_STATUS_INVALID_VALUE, reason}; }
Verdict unsupported(const char* reason) { return {CUBLAS_STATUS_NOT_SUPPORTED, reason}; }

thread_local const char* refusal = "";

bool is_row_major(const MatrixLayout& layout) { return layout.order == CUBLASLT_ORDER_ROW; }

Verdict check_layout(const MatrixLayout& layout, bool may_broadcast) {
  if (layout.order != CUBLASLT_ORDER_COL && layout.order != CUBLASLT_ORDER_ROW)
    return unsupported("a matrix has a memory order other than column- or row-major");
  if (layout.rows == 0 || layout.columns == 0) return invalid("a matrix has no elements");
  constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max());
  if (layout.rows > largest || layout.columns > largest)
    return unsupported("an extent of a matrix does not fit 32 bits");
  const std::uint64_t inner = is_row_major(layout) ? layout.columns : layout.rows;
  const bool overlaps = layout.leading < static_cast<std::int64_t>(inner);
  if (overlaps && !(may_broadcast && layout.leading == 0))
    return invalid(
        "a leading dimension is smaller than the columns (row-major: rows) it separates");
  if (layout.batch_count < 1) return invalid("a batch count is below 1");
  // Kernels that number the batch by a grid's y or z extent take no more, and for some problems
  // cuBLASLt has no others.
  if (layout.batch_count > 65535) return unsupported("a batch count is above 65535");
  return {};
}

Matrix matrix_of(const MatrixLayout& layout, bool transposed) {
  Matrix matrix;
  matrix.type = static_cast<cudaDataType>(layout.type);
  matrix.rows = static_cast<std::int64_t>(layout.rows);
  matrix.columns = static_cast<std::int64_t>(layout.columns);
  matrix.row_stride = is_row_major(layout) ? layout.leading : 1;
  matrix.column_stride = is_row_major(layout) ? 1 : layout.leading;
  matrix.batch_stride = layout.batch_count > 1 ? layout.batch_stride : 0;
  if (transposed) {
    std::swap(matrix.rows, matrix.columns);
    std::swap(matrix.row_stride, matrix.column_stride);
  }
  return matrix;
}

/// The guide's table of types: inputs alike, sums in f32 (or f64 throughout), and 16-bit products
/// stored as such or as f32.
Verdict check_types(const MatmulDescription& description, const Layouts& layouts) {
  const std::uint32_t in = layouts.a->type, out = layouts.d->type;
  if (layouts.b->type != in) return unsupported("A and B differ in type");
  if (layouts.c->type != out) return unsupported("C and D differ in type");
  switch (description.compute_type) {
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
      if (in != CUDA_R_64F || out != CUDA_R_64F || description.scale_type != CUDA_R_64F)
        return unsupported("64-bit computation takes 64-bit matrices, alpha and beta");
      return {};
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      if (in != CUDA_R_32F) return unsupported("fast 32-bit computation takes 32-bit matrices");
      [[fallthrough]];
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
      if (description.scale_type != CUDA_R_32F)
        return unsupported("32-bit computation takes 32-bit alpha and beta");
      if (in != CUDA_R_32F && in != CUDA_R_16F && in != CUDA_R_16BF)
        return unsupported("A and B are not f32, f16 or bf16");
      if (out != in && out != CUDA_R_32F) return unsupported("D is neither of A's type nor f32");
      return {};
    default: return unsupported("the compute type is not simulated");
  }
}

Verdict check_operations(const MatmulDescription& description, const Layouts& layouts) {
  bool conjugated = false;
  for (const std::int32_t operation : {description.transpose_a, description.transpose_b}) {
    if (operation < CUBLAS_OP_N || operation > CUBLAS_OP_C) return invalid("unknown transposition");
    conjugated |= operation == CUBLAS_OP_C;
  }
  if (description.transpose_c != CUBLAS_OP_N) return unsupported("C cannot be transposed");
  int row_major = 0;
  for (const MatrixLayout* layout : {layouts.a, layouts.b, layouts.c, layouts.d})
    row_major += is_row_major(*layout);
  if (conjugated && row_major > 0 && row_major < 4)
    return unsupported("CUBLAS_OP_C with row-major matrices needs all four to be row-major");
  return {};
}

Verdict check_shapes(const Problem& problem, const Layouts& layouts) {
  if (problem.b.rows != problem.depth) return invalid("op(A) and op(B) do not fit");
  if (problem.d.rows != problem.rows || problem.d.columns != problem.columns)
    return invalid("D has not the shape of op(A) op(B)");
  if (problem.c.rows != problem.d.rows || problem.c.columns != problem.d.columns)
    return invalid("C and D differ in shape");
  if (layouts.c->order != layouts.d->order) return invalid("C and D differ in memory order");
  for (const MatrixLayout* layout : {layouts.a, layouts.b, layouts.c})
    if (layout->batch_count != layouts.d->batch_count)
      return invalid("batch counts differ (a batch stride of 0 repeats a matrix)");
  if (problem.batch > 1 && problem.d.batch_stride == 0)
    return invalid("the entries of D's batch lie on each other");
  return {};
}

Verdict check_aux(const MatmulDescription& description, Problem& problem) {
  const std::int64_t leading = description.aux_leading;
  if (leading < problem.rows) return invalid("the auxiliary leading dimension is below D's rows");
  if (leading % 8 != 0) return invalid("the auxiliary leading dimension is no multiple of 8");
  if (problem.batch > 1 && description.aux_batch_stride % 8 != 0)
    return invalid("the auxiliary batch stride is no multiple of 8");
  if (problem.batch > 1 && problem.writes_aux() && description.aux_batch_stride == 0)
    return invalid("the entries of the auxiliary batch lie on each other");
  if (description.aux_type != -1 && description.aux_type != static_cast<int>(problem.d.type))
    return invalid("the auxiliary type is not D's");
  if (alignment_of(description.aux) < 16)
    return unsupported("the auxiliary pointer is not aligned to 16 bytes");
  problem.aux = {problem.d.type,  problem.rows,
                 problem.columns, 1,
                 leading,         problem.batch > 1 ? description.aux_batch_stride : 0};
  return {};
}

Verdict check_epilogue(const MatmulDescription& description, const Layouts& layouts,
                       Problem& problem) {
  switch (problem.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT: return {};
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB: break;
    default: return invalid("unknown epilogue");
  }
  if (problem.wide) return unsupported("64-bit products have no epilogue");
  if (is_row_major(*layouts.d)) return unsupported("epilogues need a column-major D");
  if (description.bias_type != -1 && description.bias_type != static_cast<int>(problem.d.type))
    return unsupported("the type of the bias is not D's");
  if (problem.writes_bias() && problem.batch > 1 && description.bias_batch_stride == 0)
    return invalid("the bias gradients of the batch lie on each other");
  if (problem.reads_aux() || problem.writes_aux()) return check_aux(description, problem);
  return {};
}

}  // namespace

std::int64_t Problem::bias_gradient_length() const {
  switch (epilogue) {
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
    case CUBLASLT_EPILOGUE_BGRADA: return rows;
    case CUBLASLT_EPILOGUE_BGRADB: return columns;
    default: return 0;
  }
}

Verdict examine(const MatmulDescription* description, const Layouts& given, Problem& problem) {
  Layouts layouts = given;
  if (!layouts.c) layouts.c = layouts.d;
  if (!description || !layouts.a || !layouts.b || !layouts.d)
    return invalid("a descriptor is missing");
  for (const MatrixLayout* layout : {layouts.a, layouts.b, layouts.d})
    if (const Verdict verdict = check_layout(*layout, false); !verdict) return verdict;
  if (const Verdict verdict = check_layout(*layouts.c, true); !verdict) return verdict;
  if (const Verdict verdict = check_types(*description, layouts); !verdict) return verdict;
  if (const Verdict verdict = check_operations(*description, layouts); !verdict) return verdict;
  problem.a = matrix_of(*layouts.a, description->transpose_a != CUBLAS_OP_N);
  problem.b = matrix_of(*layouts.b, description->transpose_b != CUBLAS_OP_N);
  problem.c = matrix_of(*layouts.c, false);
  problem.d = matrix_of(*layouts.d, false);
  problem.rows = problem.a.rows;
  problem.depth = problem.a.columns;
  problem.columns = problem.b.columns;
  problem.batch = layouts.d->batch_count;
  problem.epilogue = description->epilogue;
  problem.wide = problem.d.type == CUDA_R_64F;
  problem.tf32 = description->compute_type == CUBLAS_COMPUTE_32F_FAST_TF32;
  problem.bias_batch_stride = problem.batch > 1 ? description->bias_batch_stride : 0;
  if (const Verdict verdict = check_shapes(problem, layouts); !verdict) return verdict;
  return check_epilogue(*description, layouts, problem);
}

std::size_t size_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_64F: return 8;
    case CUDA_R_32F: return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF: return 2;
    default: return 0;
  }
}

std::uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer) | 256;
  return std::uint32_t{1} << std::countr_zero(address);
}

cublasStatus_t refuse(const Verdict& verdict) {
  refusal = verdict.reason;
  return verdict.status;
}

const char* last_refusal() { return refusal; }

}  // namespace simgpu::cublaslt
