#include <nccl.h>

#include "signatures/signature.hpp"

SIGNATURE(ncclResult_t, ncclGetVersion, (int*));
SIGNATURE(const char*, ncclGetErrorString, (ncclResult_t));
SIGNATURE(const char*, ncclGetLastError, (ncclComm_t));
SIGNATURE(ncclResult_t, ncclMemAlloc, (void**, size_t));
SIGNATURE(ncclResult_t, ncclMemFree, (void*));
SIGNATURE(ncclResult_t, ncclCommRegister, (const ncclComm_t, void*, size_t, void**));
SIGNATURE(ncclResult_t, ncclCommDeregister, (const ncclComm_t, void*));
SIGNATURE(ncclResult_t, ncclGetUniqueId, (ncclUniqueId*));
SIGNATURE(ncclResult_t, ncclCommInitRank, (ncclComm_t*, int, ncclUniqueId, int));
SIGNATURE(ncclResult_t, ncclCommInitRankConfig,
          (ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*));
SIGNATURE(ncclResult_t, ncclCommInitAll, (ncclComm_t*, int, const int*));
SIGNATURE(ncclResult_t, ncclCommSplit, (ncclComm_t, int, int, ncclComm_t*, ncclConfig_t*));
SIGNATURE(ncclResult_t, ncclCommFinalize, (ncclComm_t));
SIGNATURE(ncclResult_t, ncclCommDestroy, (ncclComm_t));
SIGNATURE(ncclResult_t, ncclCommAbort, (ncclComm_t));
SIGNATURE(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t, ncclResult_t*));
SIGNATURE(ncclResult_t, ncclCommCount, (const ncclComm_t, int*));
SIGNATURE(ncclResult_t, ncclCommCuDevice, (const ncclComm_t, int*));
SIGNATURE(ncclResult_t, ncclCommUserRank, (const ncclComm_t, int*));
SIGNATURE(ncclResult_t, ncclRedOpCreatePreMulSum,
          (ncclRedOp_t*, void*, ncclDataType_t, ncclScalarResidence_t, ncclComm_t));
SIGNATURE(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t, ncclComm_t));
SIGNATURE(ncclResult_t, ncclReduce,
          (const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t, cudaStream_t));
SIGNATURE(ncclResult_t, ncclBcast, (void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t));
SIGNATURE(ncclResult_t, ncclBroadcast,
          (const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t));
SIGNATURE(ncclResult_t, ncclAllReduce,
          (const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t));
SIGNATURE(ncclResult_t, ncclReduceScatter,
          (const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t));
SIGNATURE(ncclResult_t, ncclAllGather,
          (const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t));
SIGNATURE(ncclResult_t, ncclAlltoAll,
          (const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t));
SIGNATURE(ncclResult_t, ncclGather,
          (const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t));
SIGNATURE(ncclResult_t, ncclScatter,
          (const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t));
SIGNATURE(ncclResult_t, ncclSend,
          (const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t));
SIGNATURE(ncclResult_t, ncclRecv, (void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t));
SIGNATURE(ncclResult_t, ncclGroupStart, ());
SIGNATURE(ncclResult_t, ncclGroupEnd, ());

CONSTANT(ncclSuccess, 0);
CONSTANT(ncclUnhandledCudaError, 1);
CONSTANT(ncclSystemError, 2);
CONSTANT(ncclInternalError, 3);
CONSTANT(ncclInvalidArgument, 4);
CONSTANT(ncclInvalidUsage, 5);
CONSTANT(ncclRemoteError, 6);
CONSTANT(ncclInProgress, 7);
CONSTANT(ncclNumResults, 8);
CONSTANT(ncclNumOps_dummy, 5);
CONSTANT(ncclSum, 0);
CONSTANT(ncclProd, 1);
CONSTANT(ncclMax, 2);
CONSTANT(ncclMin, 3);
CONSTANT(ncclAvg, 4);
CONSTANT(ncclNumOps, 5);
CONSTANT(ncclMaxRedOp, 0x7fffffff >> (32 - 8 * sizeof(ncclRedOp_dummy_t)));
CONSTANT(ncclInt8, 0);
CONSTANT(ncclChar, 0);
CONSTANT(ncclUint8, 1);
CONSTANT(ncclInt32, 2);
CONSTANT(ncclInt, 2);
CONSTANT(ncclUint32, 3);
CONSTANT(ncclInt64, 4);
CONSTANT(ncclUint64, 5);
CONSTANT(ncclFloat16, 6);
CONSTANT(ncclHalf, 6);
CONSTANT(ncclFloat32, 7);
CONSTANT(ncclFloat, 7);
CONSTANT(ncclFloat64, 8);
CONSTANT(ncclDouble, 8);
CONSTANT(ncclBfloat16, 9);
CONSTANT(ncclFloat8e4m3, 10);
CONSTANT(ncclFloat8e5m2, 11);
CONSTANT(ncclNumTypes, 12);
CONSTANT(ncclScalarDevice, 0);
CONSTANT(ncclScalarHostImmediate, 1);
CONSTANT(NCCL_UNIQUE_ID_BYTES, 128);

SIZE(ncclUniqueId, 128);
SIZE(ncclConfig_t, 80);
