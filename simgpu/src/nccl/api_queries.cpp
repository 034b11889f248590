#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/coverage.hpp"
#include "engine/entry.hpp"
#include "memory/address_space.hpp"
#include "nccl/failure.hpp"
#include "nccl/handle.hpp"

/// @file
/// NCCL's remaining functions: questions, memory, registration, reductions.

using simgpu::Allowed;
using simgpu::EntryPoint;
using simgpu::nccl::communicator_of;
using simgpu::nccl::Failure;
using simgpu::nccl::guarded;
using simgpu::nccl::ScaledSum;

namespace {

// A question with one answer.
template <class Answer>
ncclResult_t ask(EntryPoint& entry, ncclComm_t comm, int* answer, Answer compute) {
  return entry.call([&] {
    return guarded([&] {
      if (!answer) throw Failure(ncclInvalidArgument, "there is no place for the answer");
      const auto communicator = communicator_of(comm);
      communicator->require_ready();
      *answer = compute(*communicator);
      return ncclSuccess;
    });
  });
}

ncclRedOp_t make_scaled_sum(void* scalar, ncclDataType_t type, ncclScalarResidence_t residence,
                            ncclComm_t comm) {
  const std::size_t bytes = simgpu::nccl::size_of(type);
  if (!scalar || bytes == 0) throw Failure(ncclInvalidArgument, "no scalar of a known type");
  ScaledSum sum{.type = type};
  if (residence == ncclScalarHostImmediate)
    std::memcpy(&sum.factor, scalar, bytes);
  else if (residence == ncclScalarDevice && simgpu::is_tracked(scalar))
    sum.device_factor = static_cast<const std::byte*>(scalar);
  else
    throw Failure(ncclInvalidArgument, "the scalar is not where its residence says");
  const auto communicator = communicator_of(comm);
  communicator->require_ready();
  return communicator->add_scaled_sum(sum);
}

// Where this variable is 0, NCCL registers nothing, gives no handle, and reports no error.
bool registers_nothing() {
  const char* const text = std::getenv("NCCL_LOCAL_REGISTER");
  return text && std::string_view(text) == "0";
}

void* register_buffer(ncclComm_t comm, void* buff, std::size_t size) {
  const auto communicator = communicator_of(comm);
  if (size == 0 || !simgpu::block_of(buff))
    throw Failure(ncclInvalidArgument,
                  "ncclCommRegister: " + simgpu::describe_address(buff) + " is not device memory");
  if (registers_nothing()) return nullptr;
  return communicator->registrations().add(buff, size, communicator->describe(),
                                           simgpu::CallSite::here());
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  static EntryPoint entry("ncclGetVersion", Allowed::always);
  return entry.call([&] {
    if (!version) return ncclInvalidArgument;
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
  });
}

const char* ncclGetErrorString(ncclResult_t result) {
  static const simgpu::Covered noted("ncclGetErrorString");
  static constexpr const char* texts[] = {"no error",
                                          "unhandled cuda error",
                                          "unhandled system error",
                                          "internal error",
                                          "invalid argument",
                                          "invalid usage",
                                          "remote process exited or network error",
                                          "in progress"};
  return result >= 0 && result < ncclNumResults ? texts[result] : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t) {
  static const simgpu::Covered noted("ncclGetLastError");
  return simgpu::nccl::last_error();
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  static EntryPoint entry("ncclCommCount");
  return ask(entry, comm, count, [](auto& communicator) { return communicator.size(); });
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  static EntryPoint entry("ncclCommUserRank");
  return ask(entry, comm, rank, [](auto& communicator) { return communicator.rank(); });
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  static EntryPoint entry("ncclCommCuDevice");
  return ask(entry, comm, device, [](auto& communicator) { return communicator.options().device; });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  static EntryPoint entry("ncclCommGetAsyncError", Allowed::always);
  return entry.call([&] {
    return guarded([&] {
      if (!asyncError) throw Failure(ncclInvalidArgument, "asyncError is null");
      *asyncError = communicator_of(comm)->state();
      return ncclSuccess;
    });
  });
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  static EntryPoint entry("ncclRedOpCreatePreMulSum");
  return entry.call([&] {
    return guarded([&] {
      if (!op) throw Failure(ncclInvalidArgument, "op is null");
      *op = make_scaled_sum(scalar, datatype, residence, comm);
      return ncclSuccess;
    });
  });
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  static EntryPoint entry("ncclRedOpDestroy", Allowed::always);
  return entry.call([&] {
    return guarded([&] {
      communicator_of(comm)->remove_scaled_sum(op);
      return ncclSuccess;
    });
  });
}

ncclResult_t ncclMemAlloc(void** ptr, size_t size) {
  static EntryPoint entry("ncclMemAlloc");
  return entry.call(
      [&] { return cudaMalloc(ptr, size) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError; });
}

ncclResult_t ncclMemFree(void* ptr) {
  static EntryPoint entry("ncclMemFree", Allowed::always);
  return entry.call(
      [&] { return cudaFree(ptr) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError; });
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle) {
  static EntryPoint entry("ncclCommRegister");
  return entry.call([&] {
    return guarded([&] {
      if (!handle) throw Failure(ncclInvalidArgument, "handle is null");
      *handle = register_buffer(comm, buff, size);
      return ncclSuccess;
    });
  });
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  static EntryPoint entry("ncclCommDeregister", Allowed::always);
  return entry.call([&] {
    return guarded([&] {
      const auto communicator = communicator_of(comm);
      // As NCCL, which gives none where it registers nothing.
      if (handle) communicator->registrations().remove(handle, communicator->describe());
      return ncclSuccess;
    });
  });
}
