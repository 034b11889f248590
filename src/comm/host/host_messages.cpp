#include "comm/host/host_backend.hpp"
#include "comm/signature.hpp"

// What becomes of a message whose other rank is in a collective instead. Collectives may go other
// ways than messages, so that neither rank meets the other: the one that has waited for long tells
// what for, and the other one knows whether that will ever come.

namespace lockstep::comm::host {

// The mutex is held.
void HostBackend::count_messages(Operations operations) {
  for (const Operation& operation : operations)
    if (operation.is_point_to_point())
      ++(operation.kind == OperationKind::send ? sent_ : received_)[operation.peer];
}

// Of several messages with one rank the last will do: it does not come if one before does not.
void HostBackend::tell_what_is_awaited() {
  std::vector<AwaitedMessage> messages;
  {
    const std::lock_guard lock(mutex_);
    if (!running_ || failure_) return;
    const Operations operations = running_->operations();
    for (const Operation& operation : operations) {
      if (!operation.is_point_to_point()) continue;
      const bool is_sent = operation.kind == OperationKind::send;
      std::erase_if(messages, [&](const AwaitedMessage& other) {
        return other.peer == operation.peer && other.is_sent == is_sent;
      });
      messages.push_back({.rank = rank(),
                          .peer = operation.peer,
                          .is_sent = is_sent,
                          .number = (is_sent ? sent_ : received_)[operation.peer],
                          .place = operations.front().sequence,
                          .call = Signature(operation).describe()});
    }
  }
  for (const AwaitedMessage& message : messages) membership_.tell_awaited(message);
}

void HostBackend::member_awaits(const AwaitedMessage& message) {
  if (message.peer != rank() || message.rank < 0 || message.rank >= size()) return;
  std::optional<Failure> failure;
  {
    const std::lock_guard lock(mutex_);
    awaited_[message.rank] = message;
    if (running_ && !failure_) failure = failure_of_missed_message();
  }
  if (failure) end(*failure);
}

// Messages that come before a collective have begun when that has. What began and is still on its
// way counts: it comes. The mutex is held.
std::optional<Failure> HostBackend::failure_of_missed_message() const {
  for (const auto& [other, message] : awaited_) {
    const auto& own = message.is_sent ? received_ : sent_;
    const auto found = own.find(other);
    const std::uint64_t begun = found == own.end() ? 0 : found->second;
    if (begun_ > message.place && begun < message.number)
      return Failure::mismatch("rank " + std::to_string(rank()) + " of " + name() + " called " +
                               describe(running_->operations()) + ", but rank " +
                               std::to_string(other) + " called " + message.call);
  }
  return std::nullopt;
}

}  // namespace lockstep::comm::host
