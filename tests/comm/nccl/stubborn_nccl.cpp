#include "comm/nccl/stubborn_nccl.hpp"

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <nccl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep::testing {
namespace {

StubbornNccl& behaviour() { return StubbornNccl::instance(); }
std::atomic<bool> has_aborted{false};
std::atomic<ncclComm_t> splitting{nullptr};
char late_part;  // a communicator by its address alone

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

// Each rank of the node adds a byte to a file that all of them know.
void meet_ranks_of_node() {
  static std::atomic<int> meetings{0};
  const std::string path =
      std::string(std::getenv("JOB_FOLDER")) + "/destroy" + std::to_string(meetings++);
  const int file = open(path.c_str(), O_CREAT | O_APPEND | O_RDWR, 0600);
  static_cast<void>(!write(file, "x", 1));
  struct stat status {};
  while (fstat(file, &status) == 0 && status.st_size < 2) nap();
  close(file);
}

}  // namespace

StubbornNccl& StubbornNccl::instance() {
  static auto* const all = new StubbornNccl;
  return *all;
}

}  // namespace lockstep::testing

using namespace lockstep::testing;

extern "C" {

ncclResult_t __real_ncclCommAbort(ncclComm_t comm);
ncclResult_t __wrap_ncclCommAbort(ncclComm_t comm) {
  has_aborted = true;
  if (static_cast<void*>(comm) == &late_part) {
    behaviour().late_part_is_aborted = true;
    return ncclSuccess;
  }
  if (splitting.load() == comm) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    *static_cast<void**>(behaviour().split_slot.load()) = &late_part;
    behaviour().split_has_written = true;
    splitting = nullptr;
  }
  const ncclResult_t status = __real_ncclCommAbort(comm);
  while (behaviour().abort_waits) nap();
  return status;
}

ncclResult_t __real_ncclCommDestroy(ncclComm_t comm);
ncclResult_t __wrap_ncclCommDestroy(ncclComm_t comm) {
  if (behaviour().destroy_is_collective) meet_ranks_of_node();
  return __real_ncclCommDestroy(comm);
}

ncclResult_t __real_ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                                  ncclConfig_t* config);
ncclResult_t __wrap_ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                                  ncclConfig_t* config) {
  if (!behaviour().split_hangs) return __real_ncclCommSplit(comm, color, key, newcomm, config);
  *newcomm = nullptr;
  behaviour().split_slot = newcomm;
  splitting = comm;
  return ncclSuccess;  // which is no promise
}

ncclResult_t __real_ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state);
ncclResult_t __wrap_ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  if (splitting.load() != comm) return __real_ncclCommGetAsyncError(comm, state);
  *state = ncclInProgress;
  return ncclSuccess;
}

ncclResult_t __real_ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                                  ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t __wrap_ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                                  ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  if (behaviour().launches_left >= 0 && behaviour().launches_left-- == 0) {
    while (!has_aborted) nap();
    return ncclInternalError;
  }
  return __real_ncclAllReduce(from, to, count, type, op, comm, stream);
}

ncclResult_t __real_ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                             ncclComm_t comm, cudaStream_t stream);
ncclResult_t __wrap_ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                             ncclComm_t comm, cudaStream_t stream) {
  if (behaviour().sends_are_buffered) return ncclSuccess;
  return __real_ncclSend(from, count, type, peer, comm, stream);
}

ncclResult_t __real_ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                             cudaStream_t stream);
ncclResult_t __wrap_ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                             cudaStream_t stream) {
  if (behaviour().sends_are_buffered)
    return cudaMemsetAsync(to, 0, count * sizeof(float), stream) == cudaSuccess ? ncclSuccess
                                                                                : ncclInternalError;
  return __real_ncclRecv(to, count, type, peer, comm, stream);
}

cudaError_t __real_cudaEventQuery(cudaEvent_t event);
cudaError_t __wrap_cudaEventQuery(cudaEvent_t event) {
  while (behaviour().driver_waits && !has_aborted) nap();
  return __real_cudaEventQuery(event);
}

cudaError_t __real_cudaSetDevice(int device);
cudaError_t __wrap_cudaSetDevice(int device) {
  if (behaviour().own_device >= 0 && device != behaviour().own_device)
    ++behaviour().foreign_devices;
  return __real_cudaSetDevice(device);
}

cudaError_t __real_cudaHostAlloc(void** data, size_t bytes, unsigned flags);
cudaError_t __wrap_cudaHostAlloc(void** data, size_t bytes, unsigned flags) {
  int current = -1;
  cudaGetDevice(&current);
  if (behaviour().own_device >= 0 && current != behaviour().own_device)
    ++behaviour().foreign_devices;
  return __real_cudaHostAlloc(data, bytes, flags);
}

cudaError_t __real_cudaHostRegister(void* data, size_t bytes, unsigned flags);
cudaError_t __wrap_cudaHostRegister(void* data, size_t bytes, unsigned flags) {
  int current = -1;
  cudaGetDevice(&current);
  if (behaviour().own_device >= 0 && current != behaviour().own_device)
    ++behaviour().foreign_devices;
  ++behaviour().pinned_ranges;
  return __real_cudaHostRegister(data, bytes, flags);
}
}
