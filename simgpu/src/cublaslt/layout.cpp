#include <new>

#include "cublaslt/descriptors.hpp"
#include "engine/entry.hpp"

using namespace simgpu;
using namespace simgpu::cublaslt;

namespace {

template <class Visit>
cublasStatus_t visit_layout(MatrixLayout* layout, cublasLtMatrixLayoutAttribute_t attribute,
                            const Visit& with) {
  if (!layout) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE: return with(layout->type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER: return with(layout->order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS: return with(layout->rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS: return with(layout->columns);
    case CUBLASLT_MATRIX_LAYOUT_LD: return with(layout->leading);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return with(layout->batch_count);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return with(layout->batch_stride);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

}  // namespace

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* matLayout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
  static EntryPoint entry("cublasLtMatrixLayoutCreate");
  return entry.call([&]() -> cublasStatus_t {
    if (!matLayout) return CUBLAS_STATUS_INVALID_VALUE;
    auto* layout = new (std::nothrow) MatrixLayout;
    if (!layout) return CUBLAS_STATUS_ALLOC_FAILED;
    layout->type = static_cast<std::uint32_t>(type);
    layout->rows = rows;
    layout->columns = cols;
    layout->leading = ld;
    *matLayout = layout;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matLayout) {
  static EntryPoint entry("cublasLtMatrixLayoutDestroy", Allowed::always);
  return entry.call([&]() -> cublasStatus_t {
    delete of(matLayout);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matLayout,
                                                cublasLtMatrixLayoutAttribute_t attr,
                                                const void* buf, size_t sizeInBytes) {
  static EntryPoint entry("cublasLtMatrixLayoutSetAttribute");
  return entry.call([&]() -> cublasStatus_t {
    return visit_layout(of(matLayout), attr, SetFrom{buf, sizeInBytes});
  });
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t matLayout,
                                                cublasLtMatrixLayoutAttribute_t attr, void* buf,
                                                size_t sizeInBytes, size_t* sizeWritten) {
  static EntryPoint entry("cublasLtMatrixLayoutGetAttribute");
  return entry.call([&]() -> cublasStatus_t {
    return visit_layout(of(matLayout), attr, GetInto{buf, sizeInBytes, sizeWritten});
  });
}
