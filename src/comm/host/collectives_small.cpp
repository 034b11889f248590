#include <algorithm>
#include <cstring>

#include "comm/host/collectives.hpp"
#include "comm/host/fold.hpp"
#include "lockstep/comm/errors.hpp"

// Signatures, and the operations whose data fits into the message that carries them.

namespace lockstep::comm::host {

// --- signatures ---------------------------------------------------------------------------------

bool Collectives::is_eager(std::size_t bytes) const { return bytes <= eager_limit; }

std::byte* Collectives::slot(int rank) {
  return slots_.data() + static_cast<std::size_t>(rank) * slot_bytes;
}

std::size_t Collectives::write_signature(const Signature& own, std::span<const std::byte> payload,
                                         std::byte* to) {
  std::memcpy(to, &own, sizeof own);
  if (!payload.empty()) std::memcpy(to + sizeof own, payload.data(), payload.size());
  return sizeof own + payload.size();
}

Signature Collectives::signature_in(const std::byte* message, int rank,
                                    std::size_t received) const {
  LOCKSTEP_CHECK(received >= sizeof(Signature), CorruptData, "rank ", rank, " of ", group_,
                 " sent ", received, " bytes where a signature of ", sizeof(Signature), " was due");
  Signature signature;
  std::memcpy(static_cast<void*>(&signature), message, sizeof signature);
  return signature;
}

void Collectives::read_signature(int rank, std::size_t received) {
  signatures_[static_cast<std::size_t>(rank)] = signature_in(slot(rank), rank, received);
  payload_sizes_[static_cast<std::size_t>(rank)] = received - sizeof(Signature);
}

void Collectives::exchange_signatures(const Operation& operation,
                                      std::span<const std::byte> payload) {
  const auto ranks = static_cast<std::size_t>(size_);
  if (slots_.size() < ranks * slot_bytes) slots_.resize(ranks * slot_bytes);
  signatures_.resize(ranks);
  payload_sizes_.resize(ranks);
  has_seen_all_ = false;
  const std::size_t size = write_signature(Signature(operation), payload, slot(rank_));
  read_signature(rank_, size);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    queue_send(peer, slot(rank_), static_cast<std::int64_t>(size));
    queue_receive(peer, slot(peer), static_cast<std::int64_t>(slot_bytes));
  }
  transport_.transfer(out_, in_, wait_options_);
  for (const Incoming& incoming : in_) read_signature(incoming.peer, incoming.received);
  clear_queues();
  has_seen_all_ = std::ranges::none_of(signatures_, &Signature::is_point_to_point);
  if (check_signatures_) require_agreement(signatures_, group_);
  for (std::size_t r = 0; r < factors_.size(); ++r) factors_[r] = signatures_[r].factor;
}

void Collectives::require_payload(int rank, const Signature& signature, std::size_t size,
                                  std::int64_t expected_bytes) const {
  LOCKSTEP_CHECK(size == static_cast<std::size_t>(expected_bytes), comm::Mismatch, "rank ", rank,
                 " of ", group_, " sent ", size, " bytes where ", expected_bytes,
                 " were due, with ", signature.describe());
}

const std::byte* Collectives::payload_of(int rank, std::int64_t expected_bytes) {
  const auto place = static_cast<std::size_t>(rank);
  require_payload(rank, signatures_[place], payload_sizes_[place], expected_bytes);
  return slot(rank) + sizeof(Signature);
}

// --- data that travels with the signature --------------------------------------------------------

void Collectives::run_small(const Operation& operation) {
  const auto total = bytes_of(operation, operation.count);
  const bool gathers = operation.kind == OperationKind::all_gather;
  const auto parts = parts_of(operation, size_);
  const Part own = parts[static_cast<std::size_t>(rank_)];
  const auto own_bytes = bytes_of(operation, own.size);
  const bool contributes = operation.kind != OperationKind::broadcast || rank_ == operation.peer;
  const auto sent = static_cast<std::size_t>(!contributes ? 0 : gathers ? own_bytes : total);
  exchange_signatures(operation, {operation.input, sent});

  const auto own_begin = bytes_of(operation, own.begin);
  switch (operation.kind) {
    case OperationKind::all_reduce: return fold_payloads(operation, 0, operation.count);
    case OperationKind::reduce_scatter: return fold_payloads(operation, own.begin, own.size);
    case OperationKind::broadcast:
      if (rank_ != operation.peer)
        copy_bytes(operation.output, payload_of(operation.peer, total), total);
      return;
    case OperationKind::all_gather:
      for (int peer = 0; peer < size_; ++peer) {
        const Part part = parts[static_cast<std::size_t>(peer)];
        const auto bytes = bytes_of(operation, part.size);
        copy_bytes(operation.output + bytes_of(operation, part.begin), payload_of(peer, bytes),
                   bytes);
      }
      return;
    case OperationKind::all_to_all:
      for (int peer = 0; peer < size_; ++peer)
        copy_bytes(
            operation.output + bytes_of(operation, parts[static_cast<std::size_t>(peer)].begin),
            payload_of(peer, total) + own_begin, own_bytes);
      return;
    default: return;  // a barrier is done once all have sent their signature
  }
}

void Collectives::fold_payloads(const Operation& operation, std::int64_t begin,
                                std::int64_t count) {
  sources_.clear();
  const auto total = bytes_of(operation, operation.count);
  for (int peer = 0; peer < size_; ++peer)
    sources_.push_back(payload_of(peer, total) + bytes_of(operation, begin));
  fold(operation.dtype, operation.reduction.kind, {sources_, factors_}, operation.output, count);
}

}  // namespace lockstep::comm::host
