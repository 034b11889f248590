#include "lockstep/comm/memory.hpp"

#include <atomic>
#include <exception>
#include <string>

#include "comm/communicator_backend.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/observe/log.hpp"

namespace lockstep::comm {
namespace {

void warn_once(std::size_t rank, const std::string& reason) {
  static std::atomic<bool> warned{false};
  if (!warned.exchange(true))
    LOCKSTEP_LOG(warning, "buffers are not registered with NCCL, which goes on without: rank ",
                 rank, ": ", reason);
}

}  // namespace

IntrusivePtr<Memory> allocate_for(Communicator& group, std::size_t bytes) {
  return group.implementation().allocate(bytes);
}

std::size_t registration_granularity(Communicator& group) {
  return group.size() > 1 ? group.implementation().registration_granularity() : 0;
}

std::unique_ptr<Registration> register_memory(Communicator& group,
                                              std::span<const MemoryRange> ranges) {
  if (registration_granularity(group) == 0) return nullptr;
  std::unique_ptr<Registration> registration;
  std::string reason;
  try {
    registration = group.implementation().register_memory(ranges);
  } catch (const std::exception& error) {  // whatever it is, the others wait to hear of it
    reason = error.what();
  }
  const auto reasons = all_gather_bytes(group, reason, "registration of buffers");
  for (std::size_t rank = 0; rank < reasons.size(); ++rank) {
    if (reasons[rank].empty()) continue;
    if (group.rank() == 0) warn_once(rank, reasons[rank]);
    return nullptr;
  }
  return registration;
}

}  // namespace lockstep::comm
