#pragma once

#include <stdexcept>
#include <string>

#include "nccl.h"

/// @file
/// How errors travel inside the simulated NCCL, and how they leave it.

namespace simgpu::nccl {

/// An error with the code that the caller of NCCL gets.
class Failure : public std::runtime_error {
 public:
  Failure(ncclResult_t status, const std::string& message)
      : std::runtime_error(message), status_(status) {}

  ncclResult_t status() const { return status_; }

 private:
  ncclResult_t status_;
};

/// Keeps the text for ncclGetLastError, and hands the status through.
ncclResult_t remember(ncclResult_t status, const std::string& message);
/// The text that was kept last, of any thread.
const char* last_error();

/// Runs the body of a C function: nothing is thrown out of it.
template <class Body>
ncclResult_t guarded(Body body) noexcept {
  try {
    return body();
  } catch (const Failure& failure) {
    return remember(failure.status(), failure.what());
  } catch (const std::exception& error) {
    return remember(ncclInternalError, error.what());
  }
}

}  // namespace simgpu::nccl
