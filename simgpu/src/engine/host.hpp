#pragma once

#include <cstddef>
#include <cstdint>

#include "base/call_site.hpp"
#include "cuda_runtime_api.h"

/// @file
/// What the host does with the device, for the other parts of the simulated GPU. None of these may
/// be called with the machine's mutex held, nor from the `run` of an operation.

namespace simgpu {

/// The calling thread's device.
int current_device();
/// Sets it. @return what it was
int exchange_current_device(int device);

/// The calling thread's device for a scope: the null handle means the default stream of that.
class OnDevice {
 public:
  explicit OnDevice(int device) : before_(exchange_current_device(device)) {}
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { exchange_current_device(before_); }

 private:
  int before_;
};

/// The stream that a handle means, as its device: cudaSuccess, or why there is none.
cudaError_t device_of_stream(cudaStream_t stream, int* device);
/// True if what is queued on the stream becomes nodes of a graph.
bool is_capturing(cudaStream_t stream);

/// Notes that the call which the calling thread is in makes it wait, or may do so.
void note_host_wait();

/// Numbers what the host asks for, in the order of its calls.
std::uint64_t next_call_number();

/// Waits until the stream's work is done, and orders it before all that the host does next.
/// @return what went wrong on the device meanwhile, or with the handle.
cudaError_t synchronize_stream(cudaStream_t stream);
/// The same, but nothing is ordered by it, nor is it a wait of the host's: for what a GPU does
/// without.
cudaError_t run_out(cudaStream_t stream);
/// As synchronize_stream for a copy that returns once it is done, whose record of the profile says
/// so.
cudaError_t await_copy(cudaStream_t stream);
/// The same for all streams of a device.
cudaError_t synchronize_device(int device);

/// Checks an access of the host itself (pinned memory) against the work that nothing made the host
/// wait for.
void host_access(const void* data, std::size_t bytes, bool writes, const CallSite& site);

/// Checks that no work which nothing made the host wait for uses pinned or registered memory that
/// a call gives back.
void check_given_back(const char* call, const void* data, std::size_t bytes, const CallSite& site);

/// True if the host has synchronised with every operation that uses the memory, so that no access
/// of the host could be a race. Asked before closed pinned pages are opened
/// (memory/pinned_pages.hpp: `close_to_host` for each operation that is queued,
/// `open_ordered_pages` after each wait).
bool host_is_up_to_date_with(const void* data, std::size_t bytes);

/// "last written by ... at ...", of what is beside an address and within a range; empty if nothing
/// is known to have written there. For reports on memory that nothing wrote.
std::string describe_writer_near(const void* address, const void* begin, std::size_t bytes);

/// Drops what is known about accesses to memory that is not in use any more.
void forget_accesses(const void* data, std::size_t bytes);

}  // namespace simgpu
