#include "comm/host/message_executor.hpp"

#include <cstring>
#include <utility>

#include "comm/host/host_backend.hpp"
#include "comm/signature.hpp"

namespace lockstep::comm::host {

MessageExecutor::MessageExecutor(std::unique_ptr<Transport> transport, std::string group,
                                 bool check_signatures, int direct_ranks)
    : transport_(std::move(transport)),
      collectives_(*transport_, std::move(group), check_signatures, direct_ranks),
      check_signatures_(check_signatures) {}

void MessageExecutor::quiesce() {
  if (!transport_->quiesce()) collectives_.abandon_buffers();
}

// Where all ranks compare all signatures, each finds a mismatch by itself. A pair's is known to one
// of the two, and to nobody else who waits for them.
bool MessageExecutor::is_mismatch_seen_by_all() const {
  return check_signatures_ && collectives_.has_seen_all();
}

// What other ranks sent for collectives that this one does not come to is no message of theirs.
std::vector<Unreceived> MessageExecutor::unreceived() {
  std::vector<Unreceived> messages;
  for (const auto& [peer, bytes] : transport_->peek(sizeof(Signature))) {
    Signature signature;
    if (bytes.size() < sizeof signature) continue;
    std::memcpy(&signature, bytes.data(), sizeof signature);
    if (signature.kind == OperationKind::send) messages.push_back({peer, signature.describe()});
  }
  return messages;
}

std::unique_ptr<Executor> MessageExecutor::split(const SplitPlan& plan) {
  auto transport = transport_->split(plan.color, plan.members, plan.all_gather);
  if (!transport) return nullptr;
  return std::make_unique<MessageExecutor>(std::move(transport), plan.name, check_signatures_);
}

std::unique_ptr<CommunicatorBackend> make_message_backend(std::unique_ptr<Transport> transport,
                                                          std::string name,
                                                          const CommunicatorOptions& options,
                                                          GroupMembership membership) {
  auto executor =
      std::make_unique<MessageExecutor>(std::move(transport), name, options.check_signatures);
  return std::make_unique<HostBackend>(std::move(executor), std::move(name), options,
                                       std::move(membership));
}

}  // namespace lockstep::comm::host
