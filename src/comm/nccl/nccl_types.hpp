#pragma once

#include <nccl.h>

#include "lockstep/comm/reduce_op.hpp"
#include "lockstep/core/dtype.hpp"

namespace lockstep::comm {

/// NCCL's name for a dtype. Bool travels as bytes.
inline ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f64: return ncclFloat64;
    case DType::f32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::f16: return ncclFloat16;
    case DType::i64: return ncclInt64;
    case DType::i32: return ncclInt32;
    case DType::u8: return ncclUint8;
    case DType::boolean: return ncclUint8;
  }
  LOCKSTEP_THROW(Unsupported, "NCCL has no type for ", dtype);
}

/// NCCL's name for a reduction that needs no factor.
inline ncclRedOp_t nccl_operation(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::average: return ncclAvg;
    case ReduceKind::min: return ncclMin;
    case ReduceKind::max: return ncclMax;
    case ReduceKind::product: return ncclProd;
    default: return ncclSum;
  }
}

}  // namespace lockstep::comm
