#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "comm/communicator_backend.hpp"
#include "comm/group_registry.hpp"
#include "lockstep/comm/bootstrap.hpp"
#include "lockstep/core/error.hpp"

/// @file
/// Ways in which the ranks of a job exchange tensors, and how one is chosen.

namespace lockstep::comm::host {
class Transport;
}

namespace lockstep::comm {

/// A group that is to be made of all ranks of a job.
struct WorldPlan {
  Bootstrap& bootstrap;  ///< for exchanges while it is made, and as long as it lives
  Device device;
  const CommunicatorOptions& options;
  GroupMembership membership;  ///< made before anything is exchanged; the backend's to keep
  ComparisonPtr comparison;    ///< for backends that do not compare by themselves
};

/// A backend that could serve the job and lacks something after all, such as memory. Every rank
/// that makes its end throws it, alike; where no backend was asked for by name, the next one is
/// made.
struct BackendUnavailable : Unsupported {
  using Unsupported::Unsupported;
};

/// What a backend's folder defines, as `const BackendFactory& NAME_backend()`.
struct BackendFactory {
  std::string_view name;  ///< see CommunicatorOptions::backend
  /// Why the backend cannot serve a job on a device; empty if it can. Alike on all ranks. One that
  /// can on the CPU serves GPUs, too: their data are staged (`make_staged`).
  std::string (*refusal)(const Bootstrap& bootstrap, Device device);
  /// Makes this rank's end; every rank calls it. @throws BackendUnavailable
  std::unique_ptr<CommunicatorBackend> (*make)(WorldPlan&& plan);
  /// Of one that works by messages: connects all ranks, for whoever builds upon it; else null.
  std::unique_ptr<host::Transport> (*connect)(Bootstrap& bootstrap) = nullptr;
};

/// Adds a backend from outside the library. It is taken where it is asked for by name.
void add_backend(const BackendFactory& factory);

/// The backend whose messages a job on host memory takes, if it has to send some: one that can
/// `connect`. @throws Unsupported
const BackendFactory& message_backend(const Bootstrap& bootstrap);

/// A group for buffers on a GPU over one for buffers on the host, which is its own from here on:
/// data go through page-locked memory. What src/comm/staged defines.
std::unique_ptr<CommunicatorBackend> make_staged(Device device,
                                                 std::unique_ptr<CommunicatorBackend> host);

/// As the public make_communicator, for a job that compares signatures.
CommunicatorPtr make_communicator(Bootstrap& bootstrap, Device device,
                                  const CommunicatorOptions& options,
                                  const ComparisonPtr& comparison);

}  // namespace lockstep::comm
