#include <cuda.h>

#include "signatures/signature.hpp"

CONSTANT(CUDA_SUCCESS, 0);
CONSTANT(CUDA_ERROR_INVALID_VALUE, 1);
CONSTANT(CUDA_ERROR_OUT_OF_MEMORY, 2);
CONSTANT(CUDA_ERROR_INVALID_DEVICE, 101);
CONSTANT(CUDA_ERROR_NOT_SUPPORTED, 801);
CONSTANT(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102);
CONSTANT(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 110);
CONSTANT(CU_MEM_ALLOCATION_TYPE_INVALID, 0);
CONSTANT(CU_MEM_ALLOCATION_TYPE_PINNED, 1);
CONSTANT(CU_MEM_HANDLE_TYPE_NONE, 0);
CONSTANT(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1);
CONSTANT(CU_MEM_LOCATION_TYPE_INVALID, 0);
CONSTANT(CU_MEM_LOCATION_TYPE_DEVICE, 1);
CONSTANT(CU_MEM_LOCATION_TYPE_HOST, 2);
CONSTANT(CU_MEM_ACCESS_FLAGS_PROT_NONE, 0);
CONSTANT(CU_MEM_ACCESS_FLAGS_PROT_READ, 1);
CONSTANT(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3);
CONSTANT(CU_MEM_ALLOC_GRANULARITY_MINIMUM, 0);
CONSTANT(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, 1);
SIZE(CUdevice, 4);
SIZE(CUdeviceptr, 8);
SIZE(CUmemGenericAllocationHandle, 8);
SIZE(CUmemLocation, 8);
SIZE(CUmemAccessDesc, 12);
SIZE(CUmemAllocationProp, 32);

SIGNATURE(CUresult, cuDeviceGet, (CUdevice*, int));
SIGNATURE(CUresult, cuDeviceGetAttribute, (int*, CUdevice_attribute, CUdevice));
SIGNATURE(CUresult, cuMemGetAllocationGranularity,
          (std::size_t*, const CUmemAllocationProp*, CUmemAllocationGranularity_flags));
SIGNATURE(CUresult, cuMemAddressReserve,
          (CUdeviceptr*, std::size_t, std::size_t, CUdeviceptr, unsigned long long));
SIGNATURE(CUresult, cuMemAddressFree, (CUdeviceptr, std::size_t));
SIGNATURE(CUresult, cuMemCreate,
          (CUmemGenericAllocationHandle*, std::size_t, const CUmemAllocationProp*,
           unsigned long long));
SIGNATURE(CUresult, cuMemRelease, (CUmemGenericAllocationHandle));
SIGNATURE(CUresult, cuMemMap,
          (CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle,
           unsigned long long));
SIGNATURE(CUresult, cuMemUnmap, (CUdeviceptr, std::size_t));
SIGNATURE(CUresult, cuMemSetAccess,
          (CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t));
