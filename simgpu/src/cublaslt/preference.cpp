#include <new>

#include "cublaslt/descriptors.hpp"
#include "engine/entry.hpp"

using namespace simgpu;
using namespace simgpu::cublaslt;

namespace {

template <class Visit>
cublasStatus_t visit_preference(Preference* preference,
                                cublasLtMatmulPreferenceAttributes_t attribute, const Visit& with) {
  if (!preference) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE: return with(preference->search_mode);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return with(preference->max_workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return with(preference->reduction_schemes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return with(preference->align_a);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return with(preference->align_b);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return with(preference->align_c);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return with(preference->align_d);
    case CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT: return with(preference->max_waves);
    case CUBLASLT_MATMUL_PREF_IMPL_MASK: return with(preference->implementations);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

}  // namespace

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* pref) {
  static EntryPoint entry("cublasLtMatmulPreferenceCreate");
  return entry.call([&]() -> cublasStatus_t {
    if (!pref) return CUBLAS_STATUS_INVALID_VALUE;
    *pref = new (std::nothrow) Preference;
    return *pref ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
  });
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref) {
  static EntryPoint entry("cublasLtMatmulPreferenceDestroy", Allowed::always);
  return entry.call([&]() -> cublasStatus_t {
    delete of(pref);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    const void* buf, size_t sizeInBytes) {
  static EntryPoint entry("cublasLtMatmulPreferenceSetAttribute");
  return entry.call([&]() -> cublasStatus_t {
    return visit_preference(of(pref), attr, SetFrom{buf, sizeInBytes});
  });
}

cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    void* buf, size_t sizeInBytes,
                                                    size_t* sizeWritten) {
  static EntryPoint entry("cublasLtMatmulPreferenceGetAttribute");
  return entry.call([&]() -> cublasStatus_t {
    return visit_preference(of(pref), attr, GetInto{buf, sizeInBytes, sizeWritten});
  });
}
