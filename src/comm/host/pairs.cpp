#include <algorithm>
#include <cstring>

#include "comm/host/collectives.hpp"
#include "core/fnv_hash.hpp"
#include "lockstep/comm/errors.hpp"

// Sends and receives. Each is a signature, with the data in the same message if it is small, and
// else followed by it in pieces. A sender expects no answer, so all sends of a batch can begin at
// once; a receiver looks at the signature before it makes room for the data.

namespace lockstep::comm::host {
namespace {

constexpr std::int64_t pair_piece = std::int64_t{16} << 20;

}  // namespace

void Collectives::exchange_pairs(std::span<const Operation> operations) {
  const auto sends = std::ranges::count(operations, OperationKind::send, &Operation::kind);
  const auto receives = std::ranges::count(operations, OperationKind::receive, &Operation::kind);
  send_slots_.resize(static_cast<std::size_t>(sends) * slot_bytes);
  const auto sources =
      std::min(static_cast<std::size_t>(receives), static_cast<std::size_t>(size_));
  if (slots_.size() < sources * slot_bytes) slots_.resize(sources * slot_bytes);
  has_seen_all_ = false;
  inbound_.clear();
  pairs_place_ = operations.front().sequence;  // all collectives of a batch come later
  std::byte* send_slot = send_slots_.data();
  for (const Operation& operation : operations) {
    if (operation.kind == OperationKind::send) {
      queue_pair_send(operation, send_slot);
      send_slot += slot_bytes;
    } else if (operation.kind == OperationKind::receive) {
      queue_pair_receive(operation);
    }
  }
  transport_.exchange(out_, in_, wait_options_, [this](Incoming& message) {
    return take_in(inbound_[static_cast<std::size_t>(&message - in_.data())], message);
  });
  clear_queues();
  for (const Operation& operation : operations) {
    if (operation.kind == OperationKind::send) note_message(rank_, operation.peer, true);
    if (operation.kind == OperationKind::receive) note_message(operation.peer, rank_, false);
  }
}

// The n-th message of one rank to another is the same number on both, of opposite signs.
void Collectives::note_message(int from, int to, bool is_sent) {
  const std::uint64_t number = is_sent ? sent_[to]++ : received_[from]++;
  const std::uint64_t message[] = {static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to),
                                   number};
  const std::uint64_t hash = lockstep::detail::fnv_hash(message, sizeof message);
  unreceived_ += is_sent ? hash : 0 - hash;
}

Signature Collectives::pair_signature_of(const Operation& operation) const {
  Signature signature(operation);
  signature.sequence = pairs_place_;
  return signature;
}

void Collectives::queue_pair_send(const Operation& operation, std::byte* send_slot) {
  const std::int64_t total = bytes_of(operation, operation.count);
  const bool is_small = is_eager(static_cast<std::size_t>(total));
  const std::size_t size =
      write_signature(pair_signature_of(operation),
                      {operation.input, static_cast<std::size_t>(is_small ? total : 0)}, send_slot);
  queue_send(operation.peer, send_slot, static_cast<std::int64_t>(size));
  for (std::int64_t begin = 0; !is_small && begin < total; begin += pair_piece)
    queue_send(operation.peer, operation.input + begin, std::min(pair_piece, total - begin));
}

void Collectives::queue_pair_receive(const Operation& operation) {
  const auto found = std::ranges::find(in_, operation.peer, &Incoming::peer);
  if (found != in_.end()) {
    inbound_[static_cast<std::size_t>(found - in_.begin())].receives.push_back(&operation);
    return;
  }
  std::byte* const place = slot(static_cast<int>(inbound_.size()));
  queue_receive(operation.peer, place, static_cast<std::int64_t>(slot_bytes));
  inbound_.push_back({.receives = {&operation}, .slot = place});
}

// True once `message` has the room for what comes next from this rank.
bool Collectives::take_in(Inbound& inbound, Incoming& message) {
  const Operation& operation = *inbound.receives[inbound.current];
  const std::int64_t total = bytes_of(operation, operation.count);
  if (!inbound.has_signature) {
    take_signature(inbound, operation, message.received);
  } else {
    require_full(message);
    inbound.received += static_cast<std::int64_t>(message.received);
  }
  if (inbound.received < total) {
    const std::int64_t bytes = std::min(pair_piece, total - inbound.received);
    message.room = {operation.output + inbound.received, static_cast<std::size_t>(bytes)};
    return true;
  }
  if (++inbound.current == inbound.receives.size()) return false;
  inbound.has_signature = false;
  inbound.received = 0;
  message.room = {inbound.slot, slot_bytes};
  return true;
}

void Collectives::take_signature(Inbound& inbound, const Operation& operation, std::size_t size) {
  const Signature sent = signature_in(inbound.slot, operation.peer, size);
  const Signature own = pair_signature_of(operation);
  // A message that nobody received before a collective must not pass for one that came after.
  const bool is_due = own.pairs_with(sent) && sent.peer == rank_ && sent.sequence == own.sequence;
  LOCKSTEP_CHECK(is_due, comm::Mismatch,
                 describe_mismatch(group_, rank_, own, operation.peer, sent));
  inbound.has_signature = true;
  const std::int64_t total = bytes_of(operation, operation.count);
  if (!is_eager(static_cast<std::size_t>(total))) return;
  require_payload(operation.peer, sent, size - sizeof sent, total);
  if (total > 0)
    std::memcpy(operation.output, inbound.slot + sizeof sent, static_cast<std::size_t>(total));
  inbound.received = total;
}

}  // namespace lockstep::comm::host
