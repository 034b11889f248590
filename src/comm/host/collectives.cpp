#include "comm/host/collectives.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "comm/host/fold.hpp"

namespace lockstep::comm::host {
namespace {

// A piece is reduced while it is still in the cache that the transport copied it through.
constexpr std::size_t default_piece_bytes = 256 << 10, least_piece_bytes = 4 << 10;

}  // namespace

Collectives::Collectives(Transport& transport, std::string group, bool check_signatures,
                         int direct_ranks)
    : transport_(transport),
      group_(std::move(group)),
      check_signatures_(check_signatures),
      rank_(transport.rank()),
      size_(transport.size()),
      piece_bytes_(std::min(
          default_piece_bytes,
          std::max(least_piece_bytes, scratch_limit / static_cast<std::size_t>(size_) / 8 * 8))),
      tree_(transport, group_, check_signatures,
            std::max(static_cast<std::size_t>(tree_limit),
                     static_cast<std::size_t>(size_) * sizeof(double))),
      is_direct_(size_ <= direct_ranks),
      factors_(static_cast<std::size_t>(size_), 1.0) {}

void Collectives::run(std::span<const Operation> operations, const Deadline& deadline) {
  wait_options_ = {&deadline, false};
  const auto is_pair = [](const Operation& operation) { return operation.is_point_to_point(); };
  if (std::ranges::any_of(operations, is_pair)) exchange_pairs(operations);
  for (const Operation& operation : operations)
    if (!is_pair(operation)) run_collective(operation);
}

bool Collectives::is_identity(const Operation& operation) const {
  return size_ == 1 && operation.kind == OperationKind::all_reduce &&
         operation.reduction.kind != ReduceKind::scaled_sum;
}

void Collectives::run_collective(const Operation& operation) {
  if (is_identity(operation)) return;
  wait_options_.busy_poll = false;
  if (!is_direct_) return run_over_tree(operation);
  const auto bytes = static_cast<std::size_t>(bytes_of(operation, operation.count));
  if (operation.kind == OperationKind::barrier || is_eager(bytes)) return run_small(operation);
  if (check_signatures_ || operation.reduction.kind == ReduceKind::scaled_sum)
    exchange_signatures(operation, {});
  run_large(operation);
}

void Collectives::run_large(const Operation& operation) {
  wait_options_.busy_poll = check_signatures_;
  if (const auto room = static_cast<std::size_t>(size_) * piece_bytes_; scratch_.size() < room)
    scratch_.resize(room);
  switch (operation.kind) {
    case OperationKind::all_reduce: return all_reduce(operation);
    case OperationKind::reduce_scatter: return reduce_scatter(operation);
    case OperationKind::all_gather: return all_gather(operation);
    case OperationKind::broadcast: return broadcast(operation);
    default: return all_to_all(operation);
  }
}

void Collectives::abandon_buffers() {
  static std::mutex mutex;
  static std::vector<std::vector<std::byte>> kept;  // until the process ends
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(slots_));
  kept.push_back(std::move(send_slots_));
  kept.push_back(std::move(scratch_));
  for (std::vector<std::byte>& buffer : tree_.take_buffers()) kept.push_back(std::move(buffer));
}

// --- data in pieces ------------------------------------------------------------------------------

Pieces Collectives::pieces_of(const Operation& operation) const {
  return {parts_of(operation, size_),
          static_cast<std::int64_t>(piece_bytes_ / size_of(operation.dtype))};
}

void Collectives::queue_scatter(const Operation& operation, const Pieces& pieces,
                                std::int64_t round) {
  const auto own = pieces.piece_of(rank_, round);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const auto theirs = pieces.piece_of(peer, round);
    queue_send(peer, operation.input + bytes_of(operation, theirs.begin),
               bytes_of(operation, theirs.size));
    queue_receive(peer, scratch(peer), bytes_of(operation, own.size));
  }
}

void Collectives::queue_gather(const Operation& operation, const Pieces& pieces,
                               std::int64_t round) {
  const auto own = pieces.piece_of(rank_, round);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const auto theirs = pieces.piece_of(peer, round);
    queue_send(peer, operation.output + bytes_of(operation, own.begin),
               bytes_of(operation, own.size));
    queue_receive(peer, operation.output + bytes_of(operation, theirs.begin),
                  bytes_of(operation, theirs.size));
  }
}

void Collectives::fold_piece(const Operation& operation, const std::byte* own, std::byte* result,
                             std::int64_t count) {
  sources_.clear();
  for (int peer = 0; peer < size_; ++peer) sources_.push_back(peer == rank_ ? own : scratch(peer));
  fold(operation.dtype, operation.reduction.kind, {sources_, factors_}, result, count);
}

// Each rank sums its part, piece by piece; the sums of one round travel with the next one's inputs.
void Collectives::all_reduce(const Operation& operation) {
  const Pieces pieces = pieces_of(operation);
  for (std::int64_t round = 0; round <= pieces.rounds; ++round) {
    if (round < pieces.rounds) queue_scatter(operation, pieces, round);
    if (round > 0) queue_gather(operation, pieces, round - 1);
    transfer();
    if (round == pieces.rounds) break;
    const Part own = pieces.piece_of(rank_, round);
    std::byte* place = operation.output + bytes_of(operation, own.begin);
    fold_piece(operation, place, place, own.size);
  }
}

void Collectives::reduce_scatter(const Operation& operation) {
  const Pieces pieces = pieces_of(operation);
  const std::int64_t begin = pieces.parts[static_cast<std::size_t>(rank_)].begin;
  for (std::int64_t round = 0; round < pieces.rounds; ++round) {
    queue_scatter(operation, pieces, round);
    transfer();
    const Part own = pieces.piece_of(rank_, round);
    fold_piece(operation, operation.input + bytes_of(operation, own.begin),
               operation.output + bytes_of(operation, own.begin - begin), own.size);
  }
}

void Collectives::all_gather(const Operation& operation) {
  const Pieces pieces = pieces_of(operation);
  const Part own = pieces.parts[static_cast<std::size_t>(rank_)];
  std::byte* place = operation.output + bytes_of(operation, own.begin);
  copy_bytes(place, operation.input, bytes_of(operation, own.size));
  for (std::int64_t round = 0; round < pieces.rounds; ++round) {
    queue_gather(operation, pieces, round);
    transfer();
  }
}

// A chain from the root: each rank passes a piece on while it receives the next.
void Collectives::broadcast(const Operation& operation) {
  const std::int64_t total = bytes_of(operation, operation.count);
  const auto piece = static_cast<std::int64_t>(piece_bytes_);
  const std::int64_t pieces = (total + piece - 1) / piece;
  const int place = (rank_ - operation.peer + size_) % size_;
  const bool receives = place > 0, sends = place + 1 < size_;
  const int previous = (rank_ + size_ - 1) % size_, next = (rank_ + 1) % size_;
  const auto size_of_piece = [&](std::int64_t k) { return std::min(piece, total - k * piece); };
  for (std::int64_t k = 0; k < pieces + (receives ? 1 : 0); ++k) {
    const std::int64_t ready = receives ? k - 1 : k;
    if (sends && ready >= 0)
      queue_send(next, operation.output + ready * piece, size_of_piece(ready));
    if (receives && k < pieces)
      queue_receive(previous, operation.output + k * piece, size_of_piece(k));
    transfer();
  }
}

void Collectives::all_to_all(const Operation& operation) {
  const Pieces pieces = pieces_of(operation);
  const std::int64_t part = bytes_of(operation, pieces.parts[0].size);
  std::memcpy(operation.output + rank_ * part, operation.input + rank_ * part,
              static_cast<std::size_t>(part));
  for (std::int64_t round = 0; round < pieces.rounds; ++round) {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      const Part piece = pieces.piece_of(peer, round);
      const std::int64_t begin = bytes_of(operation, piece.begin);
      queue_send(peer, operation.input + begin, bytes_of(operation, piece.size));
      queue_receive(peer, operation.output + begin, bytes_of(operation, piece.size));
    }
    transfer();
  }
}

// --- the queues of one transfer ------------------------------------------------------------------

void Collectives::queue_send(int peer, const std::byte* data, std::int64_t bytes) {
  if (bytes > 0) out_.push_back({peer, {data, static_cast<std::size_t>(bytes)}});
}

void Collectives::queue_receive(int peer, std::byte* room, std::int64_t bytes) {
  if (bytes > 0) in_.push_back({peer, {room, static_cast<std::size_t>(bytes)}});
}

void Collectives::clear_queues() {
  out_.clear();
  in_.clear();
}

// Not every rank exchanges data with the one that is late, or gone: some wait for those that do.
void Collectives::transfer() {
  try {
    transport_.transfer(out_, in_, wait_options_);
  } catch (TransferTimeout& timeout) {
    timeout.may_wait_themselves = true;
    throw;
  } catch (PeerGone& gone) {
    gone.is_seen_by_few = true;
    throw;
  }
  for (const Incoming& incoming : in_) require_full(incoming);
  clear_queues();
}

void Collectives::require_full(const Incoming& message) const {
  LOCKSTEP_CHECK(message.received == message.room.size(), CorruptData, "rank ", message.peer,
                 " of ", group_, " sent ", message.received, " bytes where ", message.room.size(),
                 " were due");
}

std::byte* Collectives::scratch(int peer) {
  return scratch_.data() + static_cast<std::size_t>(peer) * piece_bytes_;
}

}  // namespace lockstep::comm::host
