#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/call_site.hpp"
#include "nccl.h"
#include "nccl/call.hpp"
#include "nccl/communicator.hpp"

/// @file
/// Calls between ncclGroupStart and ncclGroupEnd.

namespace simgpu::nccl {

/// The calling thread's group. Outside of one, each call is a group of its own.
class Group {
 public:
  static Group& current();

  void start() { ++depth_; }
  /// Launches what was collected, at the outermost end. @throws Failure, the first one of the group
  ncclResult_t end();
  /// What a call inside the group failed with: it fails the group.
  void note_failure(ncclResult_t status);

  /// Adds a call. @throws Failure
  ncclResult_t add(const std::shared_ptr<Communicator>& communicator, const Arguments& arguments,
                   cudaStream_t stream, const CallSite& site);
  /// Starts work that other ranks take part in; blocking communicators are waited for at the end.
  /// @param slot where the handle stands; null after a failure of a blocking communicator
  ncclResult_t add(const std::shared_ptr<Communicator>& communicator, std::function<void()> work,
                   ncclComm_t* slot);

 private:
  struct Batch {
    std::shared_ptr<Communicator> communicator;
    std::vector<Arguments> calls;
    std::vector<cudaStream_t> streams;
    CallSite site;
  };
  struct Job {
    std::shared_ptr<Communicator> communicator;
    ncclComm_t* slot;
  };

  ncclResult_t finish_jobs();
  ncclResult_t launch_batches();

  int depth_ = 0;
  ncclResult_t failure_ = ncclSuccess;
  std::vector<Batch> batches_;  // one a communicator, in the order of their first calls
  std::vector<Job> jobs_;
};

}  // namespace simgpu::nccl
