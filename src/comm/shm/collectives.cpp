#include <algorithm>
#include <utility>

#include "comm/host/fold.hpp"
#include "comm/shm/shm_executor.hpp"

// Each collective as rounds, of one step each: show, meet, take.

namespace lockstep::comm::shm {
namespace {

using Bytes = std::int64_t;
using host::bytes_of;
using host::copy_bytes;

constexpr auto stage_size = static_cast<Bytes>(Window::stage_bytes);

// Up to so many ranks each sums everything by itself: one step, and no sum has to be fetched.
constexpr int most_that_sum_all = 3;
// Up to so many bytes, too, for what is read from all ranks then is little.
constexpr Bytes small_sum = 8192;

Bytes total_of(const Operation& operation) { return bytes_of(operation, operation.count); }

Bytes rounds_of(Bytes bytes, Bytes piece) { return (bytes + piece - 1) / piece; }

}  // namespace

// --- pieces --------------------------------------------------------------------------------------

// A stage has so many places, of one piece each.
host::Pieces ShmExecutor::pieces_of(const Operation& operation, int places) const {
  std::vector<Part> parts = host::parts_of(operation, size_);
  for (Part& part : parts)
    part = {host::bytes_of(operation, part.begin), host::bytes_of(operation, part.size)};
  return {std::move(parts), stage_size / places / 64 * 64};
}

// The first step also tells what is called; nothing is taken before that is compared. A rank that
// offers its buffer shows no data in it: where others have none to offer, it does in another step.
template <class Show, class Take>
void ShmExecutor::in_rounds(const Operation& operation, Bytes rounds, Show show, Take take) {
  if (!offer(operation) && rounds > 0) show(0);
  announce(operation);
  meet();
  compare(operation);
  if (may_run_in_place(operation) && find_offers()) {
    if (!arrays_.empty()) return run_in_place(operation);
    show(0);
    meet();
  }
  for (Bytes round = 0; round < rounds; ++round) {
    if (round > 0) {
      show(round);
      meet();
    }
    take(round);
  }
  offered_.reset();
}

// Everyone's piece of this rank's array, each in its place.
void ShmExecutor::show_parts(const Operation& operation, const Pieces& pieces, Bytes round) {
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const Part piece = pieces.piece_of(rank, round);
    copy_bytes(shown_next() + rank * pieces.piece, operation.input + piece.begin, piece.size);
  }
}

// Sums what all ranks show at an offset; this rank's own comes from where it is.
void ShmExecutor::fold_piece(const Operation& operation, const std::byte* own, Bytes offset,
                             std::byte* result, Bytes bytes) {
  sources_.clear();
  for (int rank = 0; rank < size_; ++rank)
    sources_.push_back(rank == rank_ ? own : shown_by(rank) + offset);
  host::fold(operation.dtype, operation.reduction.kind, {sources_, factors_}, result,
             bytes / bytes_of(operation, 1));
}

// --- the collectives -----------------------------------------------------------------------------

void ShmExecutor::run_collective(const Operation& operation) {
  if (size_ == 1) return run_alone(operation);
  switch (operation.kind) {
    case OperationKind::all_reduce:
      return size_ <= most_that_sum_all || total_of(operation) <= small_sum
                 ? all_reduce_by_all(operation)
                 : all_reduce_by_parts(operation);
    case OperationKind::reduce_scatter: return reduce_scatter(operation);
    case OperationKind::all_gather: return all_gather(operation);
    case OperationKind::broadcast: return broadcast(operation);
    case OperationKind::all_to_all: return all_to_all(operation);
    default:
      return in_rounds(
          operation, 0, [](Bytes) {}, [](Bytes) {});
  }
}

void ShmExecutor::run_alone(const Operation& operation) {
  const bool reduces = operation.kind == OperationKind::all_reduce ||
                       operation.kind == OperationKind::reduce_scatter;
  if (!reduces) return copy_bytes(operation.output, operation.input, total_of(operation));
  factors_[0] = operation.reduction.factor;
  fold_piece(operation, operation.input, 0, operation.output, total_of(operation));
}

void ShmExecutor::all_reduce_by_all(const Operation& operation) {
  const Bytes total = total_of(operation);
  const auto size_from = [&](Bytes begin) { return std::min(stage_size, total - begin); };
  in_rounds(
      operation, rounds_of(total, stage_size),
      [&](Bytes round) {
        const Bytes begin = round * stage_size;
        copy_bytes(shown_next(), operation.input + begin, size_from(begin));
      },
      [&](Bytes round) {
        const Bytes begin = round * stage_size;
        fold_piece(operation, operation.input + begin, 0, operation.output + begin,
                   size_from(begin));
      });
}

// Each rank sums its part; the sums of one round are shown with the data of the next.
void ShmExecutor::all_reduce_by_parts(const Operation& operation) {
  const Pieces pieces = pieces_of(operation, size_ + 1);
  const Bytes sums = size_ * pieces.piece;  // where they lie in a stage
  in_rounds(
      operation, pieces.rounds + 1,
      [&](Bytes round) {
        if (round < pieces.rounds) show_parts(operation, pieces, round);
      },
      [&](Bytes round) {
        if (round < pieces.rounds) {
          const Part own = pieces.piece_of(rank_, round);
          std::byte* const place = operation.output + own.begin;
          fold_piece(operation, operation.input + own.begin, rank_ * pieces.piece, place, own.size);
          copy_bytes(shown_next() + sums, place, own.size);
        }
        for (int rank = 0; rank < size_ && round > 0; ++rank) {
          if (rank == rank_) continue;
          const Part piece = pieces.piece_of(rank, round - 1);
          copy_bytes(operation.output + piece.begin, shown_by(rank) + sums, piece.size);
        }
      });
}

void ShmExecutor::reduce_scatter(const Operation& operation) {
  const Pieces pieces = pieces_of(operation, size_);
  const Bytes begin = pieces.piece_of(rank_, 0).begin;
  in_rounds(
      operation, pieces.rounds, [&](Bytes round) { show_parts(operation, pieces, round); },
      [&](Bytes round) {
        const Part own = pieces.piece_of(rank_, round);
        fold_piece(operation, operation.input + own.begin, rank_ * pieces.piece,
                   operation.output + (own.begin - begin), own.size);
      });
}

void ShmExecutor::all_gather(const Operation& operation) {
  const Pieces pieces = pieces_of(operation, 1);
  const Bytes begin = pieces.piece_of(rank_, 0).begin;
  in_rounds(
      operation, pieces.rounds,
      [&](Bytes round) {
        const Part own = pieces.piece_of(rank_, round);
        copy_bytes(shown_next(), operation.input + (own.begin - begin), own.size);
      },
      [&](Bytes round) {
        for (int rank = 0; rank < size_; ++rank) {
          const Part piece = pieces.piece_of(rank, round);
          const std::byte* const from =
              rank == rank_ ? operation.input + (piece.begin - begin) : shown_by(rank);
          copy_bytes(operation.output + piece.begin, from, piece.size);
        }
      });
}

void ShmExecutor::broadcast(const Operation& operation) {
  const Bytes total = total_of(operation);
  const bool is_root = rank_ == operation.peer;
  const auto size_from = [&](Bytes begin) { return std::min(stage_size, total - begin); };
  in_rounds(
      operation, rounds_of(total, stage_size),
      [&](Bytes round) {
        const Bytes begin = round * stage_size;
        if (is_root) copy_bytes(shown_next(), operation.input + begin, size_from(begin));
      },
      [&](Bytes round) {
        const Bytes begin = round * stage_size;
        if (!is_root)
          copy_bytes(operation.output + begin, shown_by(operation.peer), size_from(begin));
      });
}

void ShmExecutor::all_to_all(const Operation& operation) {
  const Pieces pieces = pieces_of(operation, size_);
  const Bytes own_begin = pieces.piece_of(rank_, 0).begin;
  in_rounds(
      operation, pieces.rounds, [&](Bytes round) { show_parts(operation, pieces, round); },
      [&](Bytes round) {
        const Bytes size = pieces.piece_of(rank_, round).size;
        const Bytes offset = pieces.piece_of(rank_, round).begin - own_begin;
        for (int rank = 0; rank < size_; ++rank) {
          const Bytes place = pieces.piece_of(rank, 0).begin + offset;
          const std::byte* const from =
              rank == rank_ ? operation.input + place : shown_by(rank) + rank_ * pieces.piece;
          copy_bytes(operation.output + place, from, size);
        }
      });
}

}  // namespace lockstep::comm::shm
