#include <memory>
#include <string>

#include "engine/entry.hpp"
#include "memory/address_space.hpp"
#include "nccl/failure.hpp"
#include "nccl/group.hpp"
#include "nccl/handle.hpp"
#include "nccl/reduction.hpp"

/// @file
/// NCCL's collectives, send and receive.

using simgpu::Access;
using simgpu::CallSite;
using simgpu::EntryPoint;
using simgpu::nccl::Arguments;
using simgpu::nccl::Communicator;
using simgpu::nccl::Failure;
using simgpu::nccl::Function;
using simgpu::nccl::Group;

namespace {

// A collective as the program calls it.
struct Request {
  Function function;
  const void* send;
  void* receive;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op = ncclSum;
  int root = 0;
};

[[noreturn]] void refuse(const Arguments& arguments, const std::string& why) {
  throw Failure(ncclInvalidArgument, std::string("nccl") + arguments.signature.name() + ": " + why);
}

void check_memory(const Communicator& communicator, const Arguments& arguments) {
  const auto accesses =
      simgpu::nccl::accesses_of(arguments, communicator.rank(), communicator.size());
  for (const Access& access : accesses) {
    if (!access.data) refuse(arguments, access.writes ? "recvbuff is null" : "sendbuff is null");
    const auto what = [&] { return simgpu::describe_address(access.data); };
    if (!simgpu::is_tracked(access.data))
      refuse(arguments, what() + " is not memory that a device can reach");
    const auto block = simgpu::block_of(access.data);
    if (block && block->kind == simgpu::MemoryKind::device &&
        block->device != communicator.options().device)
      refuse(arguments, what() + " belongs to device " + std::to_string(block->device) +
                            ", the communicator to device " +
                            std::to_string(communicator.options().device));
  }
}

void set_reduction(const Communicator& communicator, Arguments& arguments, ncclRedOp_t op,
                   ncclDataType_t type) {
  if (!simgpu::nccl::can_reduce(type))
    refuse(arguments, "this type cannot be reduced on the simulated GPU");
  if (op >= 0 && op < ncclNumOps) {
    arguments.signature.op = static_cast<std::uint8_t>(op);
    return;
  }
  const auto sum = communicator.scaled_sum(op);
  if (sum.type != type) refuse(arguments, "the reduction was made for another type");
  arguments.signature.op = ncclNumOps;
  arguments.signature.factor = sum.factor;
  arguments.device_factor = sum.device_factor;
}

Arguments check(Communicator& communicator, const Request& request) {
  Arguments arguments;
  arguments.signature.function = request.function;
  arguments.signature.type = static_cast<std::uint8_t>(request.type);
  arguments.signature.count = request.count;
  arguments.signature.root = request.root;
  arguments.send = static_cast<const std::byte*>(request.send);
  arguments.receive = static_cast<std::byte*>(request.receive);
  if (simgpu::nccl::size_of(request.type) == 0)
    refuse(arguments, "there is no type " + std::to_string(request.type));
  if (request.root < 0 || request.root >= communicator.size())
    refuse(arguments,
           "there is no rank " + std::to_string(request.root) + " in a " + communicator.describe());
  if (simgpu::nccl::reduces(request.function))
    set_reduction(communicator, arguments, request.op, request.type);
  check_memory(communicator, arguments);
  arguments.signature.is_registered =
      !communicator.registrations()
           .of(simgpu::nccl::accesses_of(arguments, communicator.rank(), communicator.size()))
           .empty();
  return arguments;
}

// NCCL drops empty collectives on the rank that calls them: nothing runs, and nobody waits.
bool is_dropped(const Request& request) {
  return request.count == 0 && !simgpu::nccl::is_point_to_point(request.function);
}

ncclResult_t call(EntryPoint& entry, const Request& request, ncclComm_t handle,
                  cudaStream_t stream) {
  return entry.call([&] {
    std::shared_ptr<Communicator> communicator;
    const ncclResult_t status = simgpu::nccl::guarded([&] {
      communicator = simgpu::nccl::communicator_of(handle);
      communicator->require_open();
      const Arguments arguments = check(*communicator, request);
      if (is_dropped(request)) return ncclSuccess;
      return Group::current().add(communicator, arguments, stream, CallSite::here());
    });
    if (status == ncclSuccess || status == ncclInProgress) return status;
    Group::current().note_failure(status);
    if (communicator) communicator->refuse_call(status);
    return status;
  });
}

}  // namespace

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  static EntryPoint entry("ncclAllReduce");
  return call(entry, {Function::all_reduce, sendbuff, recvbuff, count, datatype, op}, comm, stream);
}

ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  static EntryPoint entry("ncclReduce");
  return call(entry, {Function::reduce, sendbuff, recvbuff, count, datatype, op, root}, comm,
              stream);
}

ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  static EntryPoint entry("ncclReduceScatter");
  return call(entry, {Function::reduce_scatter, sendbuff, recvbuff, recvcount, datatype, op}, comm,
              stream);
}

ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  static EntryPoint entry("ncclAllGather");
  return call(entry, {Function::all_gather, sendbuff, recvbuff, sendcount, datatype}, comm, stream);
}

ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  static EntryPoint entry("ncclBroadcast");
  return call(entry, {Function::broadcast, sendbuff, recvbuff, count, datatype, ncclSum, root},
              comm, stream);
}

ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  static EntryPoint entry("ncclBcast");
  return call(entry, {Function::broadcast, buff, buff, count, datatype, ncclSum, root}, comm,
              stream);
}

ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                          ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  static EntryPoint entry("ncclAlltoAll");
  return call(entry, {Function::all_to_all, sendbuff, recvbuff, count, datatype}, comm, stream);
}

ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  static EntryPoint entry("ncclGather");
  return call(entry, {Function::gather, sendbuff, recvbuff, count, datatype, ncclSum, root}, comm,
              stream);
}

ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  static EntryPoint entry("ncclScatter");
  return call(entry, {Function::scatter, sendbuff, recvbuff, count, datatype, ncclSum, root}, comm,
              stream);
}

ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  static EntryPoint entry("ncclSend");
  return call(entry, {Function::send, sendbuff, nullptr, count, datatype, ncclSum, peer}, comm,
              stream);
}

ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  static EntryPoint entry("ncclRecv");
  return call(entry, {Function::receive, nullptr, recvbuff, count, datatype, ncclSum, peer}, comm,
              stream);
}

ncclResult_t ncclGroupStart() {
  static EntryPoint entry("ncclGroupStart");
  return entry.call([&] {
    Group::current().start();
    return ncclSuccess;
  });
}

ncclResult_t ncclGroupEnd() {
  static EntryPoint entry("ncclGroupEnd");
  return entry.call([&] { return simgpu::nccl::guarded([] { return Group::current().end(); }); });
}
