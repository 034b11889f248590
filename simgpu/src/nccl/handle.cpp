#include "nccl/handle.hpp"

#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/leaks.hpp"
#include "nccl/failure.hpp"

/// What a program's handle points to.
struct ncclComm {
  std::shared_ptr<simgpu::nccl::Communicator> communicator;
};

namespace simgpu::nccl {
namespace {

constexpr const char* kind = "communicator";

struct Handles {
  std::mutex mutex;
  std::unordered_map<const ncclComm*, std::unique_ptr<ncclComm>> all;

  // Handles live until they are ended: the program may use them while it ends.
  static Handles& instance() {
    static auto& handles = *new Handles;
    return handles;
  }
};

[[noreturn]] void refuse_handle(ncclComm_t handle) {
  throw Failure(ncclInvalidArgument, handle ? "the communicator was destroyed or aborted before"
                                            : "the communicator is null");
}

}  // namespace

ncclComm_t make_handle(std::shared_ptr<Communicator> communicator) {
  auto handle = std::make_unique<ncclComm>();
  ncclComm* const key = handle.get();
  object_created(kind, key, communicator->describe());
  handle->communicator = std::move(communicator);
  const std::lock_guard lock(Handles::instance().mutex);
  Handles::instance().all.emplace(key, std::move(handle));
  return key;
}

std::shared_ptr<Communicator> communicator_of(ncclComm_t handle) {
  const std::lock_guard lock(Handles::instance().mutex);
  const auto found = Handles::instance().all.find(handle);
  if (found == Handles::instance().all.end()) refuse_handle(handle);
  return found->second->communicator;
}

void end_handle(ncclComm_t handle) {
  std::unique_ptr<ncclComm> owned;
  {
    const std::lock_guard lock(Handles::instance().mutex);
    const auto found = Handles::instance().all.find(handle);
    if (found == Handles::instance().all.end()) refuse_handle(handle);
    owned = std::move(found->second);
    Handles::instance().all.erase(found);
  }
  object_destroyed(kind, handle);
  owned->communicator->leave();
}

}  // namespace simgpu::nccl
