#include <cuda_runtime_api.h>

#include "signatures/signature.hpp"

#define SIMGPU_ERROR(name, number, text) CONSTANT(name, number);
#include "cuda_errors.def"
#undef SIMGPU_ERROR

#define SIMGPU_ATTRIBUTE(name, number, value) CONSTANT(name, number);
#include "cuda_attributes.def"
#undef SIMGPU_ATTRIBUTE

SIGNATURE(cudaError_t, cudaGetDeviceCount, (int*));
SIGNATURE(cudaError_t, cudaGetDevice, (int*));
SIGNATURE(cudaError_t, cudaSetDevice, (int));
SIGNATURE(cudaError_t, cudaInitDevice, (int, unsigned, unsigned));
SIGNATURE(cudaError_t, cudaSetDeviceFlags, (unsigned));
SIGNATURE(cudaError_t, cudaGetDeviceFlags, (unsigned*));
SIGNATURE(cudaError_t, cudaGetDeviceProperties, (cudaDeviceProp*, int));
SIGNATURE(cudaError_t, cudaDeviceGetAttribute, (int*, cudaDeviceAttr, int));
SIGNATURE(cudaError_t, cudaDeviceGetPCIBusId, (char*, int, int));
SIGNATURE(cudaError_t, cudaDeviceGetStreamPriorityRange, (int*, int*));
SIGNATURE(cudaError_t, cudaDeviceSynchronize, ());
SIGNATURE(cudaError_t, cudaDeviceReset, ());
SIGNATURE(cudaError_t, cudaDeviceCanAccessPeer, (int*, int, int));
SIGNATURE(cudaError_t, cudaDeviceEnablePeerAccess, (int, unsigned));
SIGNATURE(cudaError_t, cudaDeviceDisablePeerAccess, (int));
SIGNATURE(cudaError_t, cudaDriverGetVersion, (int*));
SIGNATURE(cudaError_t, cudaRuntimeGetVersion, (int*));
SIGNATURE(cudaError_t, cudaGetDriverEntryPointByVersion,
          (const char*, void**, unsigned, unsigned long long, cudaDriverEntryPointQueryResult*));
SIGNATURE(cudaError_t, cudaGetSymbolAddress, (void**, const void*));
SIGNATURE(cudaError_t, cudaGetSymbolSize, (std::size_t*, const void*));
SIGNATURE(cudaError_t, cudaMemcpyToSymbol,
          (const void*, const void*, std::size_t, std::size_t, cudaMemcpyKind));
SIGNATURE(cudaError_t, cudaMemcpyToSymbolAsync,
          (const void*, const void*, std::size_t, std::size_t, cudaMemcpyKind, cudaStream_t));
SIGNATURE(cudaError_t, cudaMemcpyFromSymbol,
          (void*, const void*, std::size_t, std::size_t, cudaMemcpyKind));
SIGNATURE(cudaError_t, cudaMemcpyFromSymbolAsync,
          (void*, const void*, std::size_t, std::size_t, cudaMemcpyKind, cudaStream_t));
SIGNATURE(cudaError_t, cudaGetLastError, ());
SIGNATURE(cudaError_t, cudaPeekAtLastError, ());
SIGNATURE(const char*, cudaGetErrorName, (cudaError_t));
SIGNATURE(const char*, cudaGetErrorString, (cudaError_t));
SIGNATURE(cudaError_t, cudaStreamCreate, (cudaStream_t*));
SIGNATURE(cudaError_t, cudaStreamCreateWithFlags, (cudaStream_t*, unsigned));
SIGNATURE(cudaError_t, cudaStreamCreateWithPriority, (cudaStream_t*, unsigned, int));
SIGNATURE(cudaError_t, cudaStreamDestroy, (cudaStream_t));
SIGNATURE(cudaError_t, cudaStreamSynchronize, (cudaStream_t));
SIGNATURE(cudaError_t, cudaStreamQuery, (cudaStream_t));
SIGNATURE(cudaError_t, cudaStreamWaitEvent, (cudaStream_t, cudaEvent_t, unsigned));
SIGNATURE(cudaError_t, cudaStreamGetPriority, (cudaStream_t, int*));
SIGNATURE(cudaError_t, cudaStreamGetFlags, (cudaStream_t, unsigned*));
SIGNATURE(cudaError_t, cudaStreamGetId, (cudaStream_t, unsigned long long*));
SIGNATURE(cudaError_t, cudaStreamGetDevice, (cudaStream_t, int*));
SIGNATURE(cudaError_t, cudaLaunchHostFunc, (cudaStream_t, cudaHostFn_t, void*));
SIGNATURE(cudaError_t, cudaStreamAddCallback,
          (cudaStream_t, cudaStreamCallback_t, void*, unsigned));
SIGNATURE(cudaError_t, cudaEventCreate, (cudaEvent_t*));
SIGNATURE(cudaError_t, cudaEventCreateWithFlags, (cudaEvent_t*, unsigned));
SIGNATURE(cudaError_t, cudaEventDestroy, (cudaEvent_t));
SIGNATURE(cudaError_t, cudaEventRecord, (cudaEvent_t, cudaStream_t));
SIGNATURE(cudaError_t, cudaEventRecordWithFlags, (cudaEvent_t, cudaStream_t, unsigned));
SIGNATURE(cudaError_t, cudaEventQuery, (cudaEvent_t));
SIGNATURE(cudaError_t, cudaEventSynchronize, (cudaEvent_t));
SIGNATURE(cudaError_t, cudaEventElapsedTime, (float*, cudaEvent_t, cudaEvent_t));
SIGNATURE(cudaError_t, cudaStreamBeginCapture, (cudaStream_t, cudaStreamCaptureMode));
SIGNATURE(cudaError_t, cudaStreamEndCapture, (cudaStream_t, cudaGraph_t*));
SIGNATURE(cudaError_t, cudaStreamIsCapturing, (cudaStream_t, cudaStreamCaptureStatus*));
SIGNATURE(cudaError_t, cudaStreamGetCaptureInfo,
          (cudaStream_t, cudaStreamCaptureStatus*, unsigned long long*, cudaGraph_t*,
           const cudaGraphNode_t**, const cudaGraphEdgeData**, std::size_t*));
SIGNATURE(cudaError_t, cudaThreadExchangeStreamCaptureMode, (cudaStreamCaptureMode*));
SIGNATURE(cudaError_t, cudaGraphCreate, (cudaGraph_t*, unsigned));
SIGNATURE(cudaError_t, cudaGraphDestroy, (cudaGraph_t));
SIGNATURE(cudaError_t, cudaGraphGetNodes, (cudaGraph_t, cudaGraphNode_t*, std::size_t*));
SIGNATURE(cudaError_t, cudaGraphInstantiate, (cudaGraphExec_t*, cudaGraph_t, unsigned long long));
SIGNATURE(cudaError_t, cudaGraphInstantiateWithFlags,
          (cudaGraphExec_t*, cudaGraph_t, unsigned long long));
SIGNATURE(cudaError_t, cudaGraphExecUpdate,
          (cudaGraphExec_t, cudaGraph_t, cudaGraphExecUpdateResultInfo*));
SIGNATURE(cudaError_t, cudaGraphUpload, (cudaGraphExec_t, cudaStream_t));
SIGNATURE(cudaError_t, cudaGraphLaunch, (cudaGraphExec_t, cudaStream_t));
SIGNATURE(cudaError_t, cudaGraphExecDestroy, (cudaGraphExec_t));
SIGNATURE(cudaError_t, cudaMalloc, (void**, std::size_t));
SIGNATURE(cudaError_t, cudaFree, (void*));
SIGNATURE(cudaError_t, cudaMallocHost, (void**, std::size_t));
SIGNATURE(cudaError_t, cudaHostAlloc, (void**, std::size_t, unsigned));
SIGNATURE(cudaError_t, cudaFreeHost, (void*));
SIGNATURE(cudaError_t, cudaHostGetDevicePointer, (void**, void*, unsigned));
SIGNATURE(cudaError_t, cudaHostGetFlags, (unsigned*, void*));
SIGNATURE(cudaError_t, cudaMallocAsync, (void**, std::size_t, cudaStream_t));
SIGNATURE(cudaError_t, cudaMallocFromPoolAsync, (void**, std::size_t, cudaMemPool_t, cudaStream_t));
SIGNATURE(cudaError_t, cudaFreeAsync, (void*, cudaStream_t));
SIGNATURE(cudaError_t, cudaDeviceGetDefaultMemPool, (cudaMemPool_t*, int));
SIGNATURE(cudaError_t, cudaDeviceGetMemPool, (cudaMemPool_t*, int));
SIGNATURE(cudaError_t, cudaMemPoolSetAttribute, (cudaMemPool_t, cudaMemPoolAttr, void*));
SIGNATURE(cudaError_t, cudaMemPoolGetAttribute, (cudaMemPool_t, cudaMemPoolAttr, void*));
SIGNATURE(cudaError_t, cudaMemPoolTrimTo, (cudaMemPool_t, std::size_t));
SIGNATURE(cudaError_t, cudaMemGetInfo, (std::size_t*, std::size_t*));
SIGNATURE(cudaError_t, cudaPointerGetAttributes, (cudaPointerAttributes*, const void*));
SIGNATURE(cudaError_t, cudaMemcpy, (void*, const void*, std::size_t, cudaMemcpyKind));
SIGNATURE(cudaError_t, cudaMemcpyAsync,
          (void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t));
SIGNATURE(cudaError_t, cudaMemcpyPeer, (void*, int, const void*, int, std::size_t));
SIGNATURE(cudaError_t, cudaMemcpyPeerAsync,
          (void*, int, const void*, int, std::size_t, cudaStream_t));
SIGNATURE(cudaError_t, cudaMemcpy2D,
          (void*, std::size_t, const void*, std::size_t, std::size_t, std::size_t, cudaMemcpyKind));
SIGNATURE(cudaError_t, cudaMemcpy2DAsync,
          (void*, std::size_t, const void*, std::size_t, std::size_t, std::size_t, cudaMemcpyKind,
           cudaStream_t));
SIGNATURE(cudaError_t, cudaMemset, (void*, int, std::size_t));
SIGNATURE(cudaError_t, cudaMemsetAsync, (void*, int, std::size_t, cudaStream_t));
SIGNATURE(cudaError_t, cudaMemset2D, (void*, std::size_t, int, std::size_t, std::size_t));
SIGNATURE(cudaError_t, cudaMemset2DAsync,
          (void*, std::size_t, int, std::size_t, std::size_t, cudaStream_t));
SIGNATURE(cudaError_t, cudaFuncGetAttributes, (cudaFuncAttributes*, const void*));
SIGNATURE(cudaError_t, cudaFuncSetAttribute, (const void*, cudaFuncAttribute, int));
SIGNATURE(cudaError_t, cudaFuncGetName, (const char**, const void*));
SIGNATURE(cudaError_t, cudaOccupancyMaxActiveBlocksPerMultiprocessor,
          (int*, const void*, int, std::size_t));

CONSTANT(cudaMemcpyHostToHost, 0);
CONSTANT(cudaMemcpyHostToDevice, 1);
CONSTANT(cudaMemcpyDeviceToHost, 2);
CONSTANT(cudaMemcpyDeviceToDevice, 3);
CONSTANT(cudaMemcpyDefault, 4);
CONSTANT(cudaMemoryTypeUnregistered, 0);
CONSTANT(cudaMemoryTypeHost, 1);
CONSTANT(cudaMemoryTypeDevice, 2);
CONSTANT(cudaMemoryTypeManaged, 3);
CONSTANT(cudaMemPoolReuseFollowEventDependencies, 1);
CONSTANT(cudaMemPoolReuseAllowOpportunistic, 2);
CONSTANT(cudaMemPoolReuseAllowInternalDependencies, 3);
CONSTANT(cudaMemPoolAttrReleaseThreshold, 4);
CONSTANT(cudaMemPoolAttrReservedMemCurrent, 5);
CONSTANT(cudaMemPoolAttrReservedMemHigh, 6);
CONSTANT(cudaMemPoolAttrUsedMemCurrent, 7);
CONSTANT(cudaMemPoolAttrUsedMemHigh, 8);
CONSTANT(cudaStreamCaptureStatusActive, 1);
CONSTANT(cudaStreamCaptureStatusInvalidated, 2);
CONSTANT(cudaStreamCaptureModeGlobal, 0);
CONSTANT(cudaStreamCaptureModeThreadLocal, 1);
CONSTANT(cudaStreamCaptureModeRelaxed, 2);
CONSTANT(cudaGraphExecUpdateSuccess, 0);
CONSTANT(cudaGraphExecUpdateError, 1);
CONSTANT(cudaGraphExecUpdateErrorTopologyChanged, 2);
CONSTANT(cudaGraphExecUpdateErrorNodeTypeChanged, 3);
CONSTANT(cudaGraphExecUpdateErrorFunctionChanged, 4);
CONSTANT(cudaGraphExecUpdateErrorParametersChanged, 5);
CONSTANT(cudaGraphExecUpdateErrorNotSupported, 6);
CONSTANT(cudaGraphExecUpdateErrorUnsupportedFunctionChange, 7);
CONSTANT(cudaGraphExecUpdateErrorAttributesChanged, 8);
CONSTANT(cudaGraphInstantiateFlagAutoFreeOnLaunch, 1);
CONSTANT(cudaGraphInstantiateFlagUpload, 2);
CONSTANT(cudaGraphInstantiateFlagDeviceLaunch, 4);
CONSTANT(cudaGraphInstantiateFlagUseNodePriority, 8);
CONSTANT(cudaFuncAttributeMaxDynamicSharedMemorySize, 8);
CONSTANT(cudaFuncAttributePreferredSharedMemoryCarveout, 9);
CONSTANT(cudaFuncAttributeMax, 16);
CONSTANT(cudaLaunchAttributeIgnore, 0);
CONSTANT(cudaLaunchAttributeCooperative, 2);
CONSTANT(cudaLaunchAttributeClusterDimension, 4);
CONSTANT(cudaLaunchAttributeProgrammaticStreamSerialization, 6);
CONSTANT(cudaLaunchAttributePriority, 8);
CONSTANT(cudaStreamDefault, 0x00);
CONSTANT(cudaStreamNonBlocking, 0x01);
CONSTANT(cudaEventDefault, 0x00);
CONSTANT(cudaEventBlockingSync, 0x01);
CONSTANT(cudaEventDisableTiming, 0x02);
CONSTANT(cudaEventInterprocess, 0x04);
CONSTANT(cudaEventRecordDefault, 0x00);
CONSTANT(cudaEventRecordExternal, 0x01);
CONSTANT(cudaEventWaitDefault, 0x00);
CONSTANT(cudaEventWaitExternal, 0x01);
CONSTANT(cudaHostAllocDefault, 0x00);
CONSTANT(cudaHostAllocPortable, 0x01);
CONSTANT(cudaHostAllocMapped, 0x02);
CONSTANT(cudaHostAllocWriteCombined, 0x04);
CONSTANT(cudaHostRegisterDefault, 0x00);
CONSTANT(cudaHostRegisterPortable, 0x01);
CONSTANT(cudaHostRegisterMapped, 0x02);
CONSTANT(cudaEnableDefault, 0);
CONSTANT(cudaEnableLegacyStream, 1);
CONSTANT(cudaEnablePerThreadDefaultStream, 2);
CONSTANT(cudaDriverEntryPointSuccess, 0);
CONSTANT(cudaDriverEntryPointSymbolNotFound, 1);
CONSTANT(cudaDriverEntryPointVersionNotSufficent, 2);
CONSTANT(cudaDeviceScheduleAuto, 0x00);
CONSTANT(cudaDeviceScheduleSpin, 0x01);
CONSTANT(cudaDeviceScheduleYield, 0x02);
CONSTANT(cudaDeviceScheduleBlockingSync, 0x04);
CONSTANT(cudaDeviceScheduleMask, 0x07);
CONSTANT(cudaDeviceMapHost, 0x08);
CONSTANT(cudaDeviceMask, 0xff);
CONSTANT(cudaOccupancyDefault, 0x00);

SIZE(cudaPointerAttributes, 88);
SIZE(cudaLaunchConfig_t, 56);
SIZE(cudaLaunchAttribute, 72);
SIZE(cudaGraphEdgeData, 8);
SIZE(cudaGraphExecUpdateResultInfo, 24);
SIZE(dim3, 12);
SIGNATURE(cudaError_t, cudaMallocManaged, (void**, std::size_t, unsigned));
SIGNATURE(cudaError_t, cudaMemAdvise,
          (const void*, std::size_t, cudaMemoryAdvise, cudaMemLocation));
SIGNATURE(cudaError_t, cudaMemPrefetchAsync,
          (const void*, std::size_t, cudaMemLocation, unsigned, cudaStream_t));
CONSTANT(cudaMemAttachGlobal, 1);
CONSTANT(cudaCpuDeviceId, -1);
CONSTANT(cudaMemAdviseSetPreferredLocation, 3);
CONSTANT(cudaMemAdviseUnsetAccessedBy, 6);
CONSTANT(cudaMemLocationTypeDevice, 1);
CONSTANT(cudaMemLocationTypeHost, 2);
