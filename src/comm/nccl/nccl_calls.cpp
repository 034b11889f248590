#include "comm/nccl/nccl_calls.hpp"

#include <algorithm>
#include <vector>

#include "comm/nccl/nccl_types.hpp"
#include "lockstep/core/dtype.hpp"

namespace lockstep::comm {
namespace {

std::size_t elements(std::int64_t count) { return static_cast<std::size_t>(count); }

// A reduction for one call; a scaled sum exists only as long as it is used.
class NcclReduction {
 public:
  NcclReduction(ReduceOp reduction, DType dtype, ncclComm_t communicator)
      : communicator_(communicator), operation_(nccl_operation(reduction.kind)) {
    if (reduction.kind != ReduceKind::scaled_sum) return;
    dispatch_floating(dtype, "scaled_sum", [&](auto tag) {
      using T = typename decltype(tag)::type;
      T factor = static_cast<T>(static_cast<AccumulateType<T>>(reduction.factor));
      status_ = ncclRedOpCreatePreMulSum(&operation_, &factor, nccl_type(dtype),
                                         ncclScalarHostImmediate, communicator_);
    });
    is_owned_ = status_ == ncclSuccess;
  }
  NcclReduction(const NcclReduction&) = delete;
  NcclReduction& operator=(const NcclReduction&) = delete;

  /// After the last call that uses it, with what that returned. After an error the communicator may
  /// be gone already, and what belonged to it.
  ncclResult_t end(ncclResult_t status) const {
    if (is_owned_ && (status == ncclSuccess || status == ncclInProgress))
      ncclRedOpDestroy(operation_, communicator_);
    return status;
  }
  ncclResult_t status() const { return status_; }
  ncclRedOp_t operation() const { return operation_; }

 private:
  ncclComm_t communicator_;
  ncclRedOp_t operation_;
  ncclResult_t status_ = ncclSuccess;
  bool is_owned_ = false;
};

// Calls NCCL once for each part, as one group; the first error stops it.
template <class Call>
ncclResult_t grouped(int parts, Call call) {
  ncclResult_t status = ncclGroupStart();
  if (status != ncclSuccess) return status;
  for (int part = 0; part < parts; ++part) {
    status = call(part);
    if (status != ncclSuccess && status != ncclInProgress) break;
  }
  const ncclResult_t ended = ncclGroupEnd();
  return status == ncclSuccess || status == ncclInProgress ? ended : status;
}

bool are_even(const std::vector<std::int64_t>& parts) {
  return std::ranges::all_of(parts, [&](std::int64_t part) { return part == parts[0]; });
}

std::size_t part_of(const Operation& operation, int rank) {
  return elements(operation.counts[static_cast<std::size_t>(rank)]);
}

/// What one rank reduces alone, and where it is, is the result: factors were applied before
/// (nccl_scaling.hpp).
bool is_reduced(const Operation& operation, const NcclPlace& place) {
  return place.size == 1 && operation.input == operation.output;
}

ncclResult_t all_reduce(const Operation& operation, const NcclPlace& place) {
  if (is_reduced(operation, place)) return ncclSuccess;
  const NcclReduction op(operation.reduction, operation.dtype, place.communicator);
  if (op.status() != ncclSuccess) return op.status();
  return op.end(ncclAllReduce(operation.input, operation.output, elements(operation.count),
                              nccl_type(operation.dtype), op.operation(), place.communicator,
                              place.stream));
}

ncclResult_t reduce_scatter(const Operation& operation, const NcclPlace& place) {
  if (is_reduced(operation, place)) return ncclSuccess;
  const ncclDataType_t type = nccl_type(operation.dtype);
  const NcclReduction op(operation.reduction, operation.dtype, place.communicator);
  if (op.status() != ncclSuccess) return op.status();
  if (are_even(operation.counts))
    return op.end(ncclReduceScatter(operation.input, operation.output,
                                    part_of(operation, place.rank), type, op.operation(),
                                    place.communicator, place.stream));
  const std::byte* part = operation.input;
  return op.end(grouped(place.size, [&](int root) {
    const std::size_t count = part_of(operation, root);
    const std::byte* begin = part;
    part += count * size_of(operation.dtype);
    return ncclReduce(begin, operation.output, count, type, op.operation(), root,
                      place.communicator, place.stream);
  }));
}

ncclResult_t all_gather(const Operation& operation, const NcclPlace& place) {
  const ncclDataType_t type = nccl_type(operation.dtype);
  if (are_even(operation.counts))
    return ncclAllGather(operation.input, operation.output, part_of(operation, place.rank), type,
                         place.communicator, place.stream);
  std::byte* part = operation.output;
  return grouped(place.size, [&](int root) {
    const std::size_t count = part_of(operation, root);
    std::byte* begin = part;
    part += count * size_of(operation.dtype);
    return ncclBroadcast(root == place.rank ? operation.input : begin, begin, count, type, root,
                         place.communicator, place.stream);
  });
}

ncclResult_t all_to_all(const Operation& operation, const NcclPlace& place) {
  const std::size_t count = elements(operation.count / place.size);
  const std::size_t bytes = count * size_of(operation.dtype);
  const ncclDataType_t type = nccl_type(operation.dtype);
  return grouped(place.size, [&](int peer) {
    const std::size_t offset = static_cast<std::size_t>(peer) * bytes;
    const ncclResult_t sent =
        ncclSend(operation.input + offset, count, type, peer, place.communicator, place.stream);
    if (sent != ncclSuccess && sent != ncclInProgress) return sent;
    return ncclRecv(operation.output + offset, count, type, peer, place.communicator, place.stream);
  });
}

ncclResult_t enqueue_one(const Operation& operation, const NcclPlace& place) {
  const std::size_t count = elements(operation.count);
  const ncclDataType_t type = nccl_type(operation.dtype);
  switch (operation.kind) {
    case OperationKind::all_reduce: return all_reduce(operation, place);
    case OperationKind::reduce_scatter: return reduce_scatter(operation, place);
    case OperationKind::all_gather: return all_gather(operation, place);
    case OperationKind::all_to_all: return all_to_all(operation, place);
    case OperationKind::broadcast:
      return ncclBroadcast(operation.input, operation.output, count, type, operation.peer,
                           place.communicator, place.stream);
    case OperationKind::send:
      return ncclSend(operation.input, count, type, operation.peer, place.communicator,
                      place.stream);
    case OperationKind::receive:
      return ncclRecv(operation.output, count, type, operation.peer, place.communicator,
                      place.stream);
    case OperationKind::barrier:
      return ncclAllReduce(&place.scratch->barrier, &place.scratch->barrier, 1, ncclFloat32,
                           ncclMax, place.communicator, place.stream);
  }
  return ncclInvalidArgument;
}

}  // namespace

ncclResult_t enqueue(std::span<const Operation> operations, const NcclPlace& place) {
  if (operations.size() == 1) return enqueue_one(operations.front(), place);
  return grouped(static_cast<int>(operations.size()), [&](int i) {
    return enqueue_one(operations[static_cast<std::size_t>(i)], place);
  });
}

}  // namespace lockstep::comm
