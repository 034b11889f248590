#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "cuda_runtime_api.h"
#include "engine/host_threads.hpp"
#include "profile/profile.hpp"

/// @file
/// The door of every C function: counts the calls, takes the host's virtual tick, returns injected
/// and sticky errors, and keeps the last error.

namespace simgpu {

/// When a function may be called.
enum class Allowed : unsigned char {
  always,        ///< even after a sticky error: error queries, destruction
  normally,      ///< not after a sticky error
  not_capturing  ///< nor while a stream of the process captures: allocation, synchronisation
};

/// The name of the function that the calling thread is in, for its scope.
class RunningCall {
 public:
  explicit RunningCall(const char* name) : before_(current), outermost_before_(outermost) {
    if (*before_ == '\0') outermost = name;
    current = name;
  }
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;
  ~RunningCall() {
    current = before_;
    outermost = outermost_before_;
  }

  static const char* name() { return current; }
  /// That of the program's own call, which may be carried out by others.
  static const char* of_program() { return outermost; }

 private:
  static inline thread_local const char* current = "";
  static inline thread_local const char* outermost = "";
  const char* before_;
  const char* outermost_before_;
};

/// One function of the simulated libraries: a static object in its body.
///
///     cudaError_t cudaMalloc(void** data, std::size_t bytes) {
///       static EntryPoint entry("cudaMalloc", Allowed::not_capturing);
///       return entry.call([&] { return allocate(data, bytes, ...); });
///     }
///
/// The status may be of another library's type; injected errors are converted by their number.
/// The machine's mutex is not held while the body runs.
class EntryPoint {
 public:
  explicit EntryPoint(const char* name, Allowed allowed = Allowed::normally);

  /// Runs the body unless something forbids the call; its status becomes the thread's last error
  /// if it is one of the runtime's.
  template <class Body>
  auto call(Body body) -> std::invoke_result_t<Body> {
    using Status = std::invoke_result_t<Body>;
    const OwnLocks own;
    const RunningCall running(name_);
    const profile::HostClockPause simulated;
    if (const std::optional<int> refused = enter(std::is_same_v<Status, cudaError_t>))
      return finish(static_cast<Status>(*refused));
    return finish(body());
  }

  const char* name() const { return name_; }
  /// Calls so far.
  std::uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }
  /// The function registered before this one; see first_entry_point.
  const EntryPoint* next() const { return next_; }

 private:
  std::optional<int> enter(bool is_runtime);
  cudaError_t finish(cudaError_t status);
  template <class Status>
  Status finish(Status status) {
    return status;
  }

  const char* name_;
  Allowed allowed_;
  std::atomic<std::uint64_t> calls_{0};
  const EntryPoint* next_ = nullptr;
};

/// Head of the list of functions that were called at least once.
const EntryPoint* first_entry_point();

/// The calling thread's error state. `note_error` leaves success and what is noted alone.
void note_error(cudaError_t status);
cudaError_t noted_error();
void clear_noted_error();

/// A kernel or copy failed on the device: all later calls return `status`, as after a real fault.
void raise_sticky_error(cudaError_t status);
/// True after that: what was queued before does not run any more.
bool has_sticky_error();
/// Tests: as if the process had begun anew.
void forget_sticky_error();

}  // namespace simgpu
