#include <algorithm>
#include <cstring>

#include "comm/host/fold.hpp"
#include "comm/shm/shm_executor.hpp"

// Collectives on buffers that all ranks have in the window's heap: the ranks read what they need
// where it lies, and a last step tells that nobody does any more. Only sums are written into the
// memory of other ranks.

namespace lockstep::comm::shm {
namespace {

using Bytes = std::int64_t;
using host::bytes_of;

// Below it a step costs more than copies do.
constexpr Bytes smallest = 16 << 10;
// What a rank sums before it writes the copies: the arrays' pieces of it lie in a core's cache
// then.
constexpr Bytes sum_piece = 16 << 10;
// What a rank copies between two looks at an abort.
constexpr Bytes copy_piece = 1 << 20;
// Ranks begin their parts on lines of their own.
constexpr Bytes line = 64;

}  // namespace

// Alike on all ranks, whose operations are alike.
bool ShmExecutor::may_run_in_place(const Operation& operation) const {
  switch (operation.kind) {
    case OperationKind::all_reduce:
    case OperationKind::reduce_scatter:
    case OperationKind::all_gather:
    case OperationKind::broadcast:
      return bytes_of(operation, operation.count) >= smallest && heap_ != nullptr;
    default: return false;
  }
}

ShmExecutor::Offer ShmExecutor::offer_of(const Operation& operation) const {
  Bytes elements = operation.count;
  if (operation.kind == OperationKind::all_gather)
    elements = operation.counts.empty() ? operation.count / size_
                                        : operation.counts[static_cast<std::size_t>(rank_)];
  return {const_cast<std::byte*>(operation.input), bytes_of(operation, elements),
          operation.kind == OperationKind::all_reduce};
}

// After the first step. True if any rank has offered its buffer; `arrays_` has those of all ranks,
// or none.
bool ShmExecutor::find_offers() {
  arrays_.clear();
  int offers = 0;
  for (int rank = 0; rank < size_; ++rank)
    offers += window_->board(rank).places[step_ & 1U] != 0 ? 1 : 0;
  if (offers < size_) return offers > 0;
  for (int rank = 0; rank < size_; ++rank)
    arrays_.push_back(heap_->at(rank, window_->board(rank).places[step_ & 1U]));
  return true;
}

void ShmExecutor::run_in_place(const Operation& operation) {
  const Pieces pieces = pieces_of(operation, 1);
  const Part own = pieces.parts[static_cast<std::size_t>(rank_)];
  switch (operation.kind) {
    case OperationKind::all_reduce: all_reduce_in_place(operation); break;
    case OperationKind::reduce_scatter:
      for (Bytes begin = 0; begin < own.size; begin += copy_piece) {
        waiting_.check_aborted();
        fold_arrays(operation, own.begin + begin, operation.output + begin,
                    std::min(copy_piece, own.size - begin));
      }
      break;
    case OperationKind::all_gather:
      for (int rank = 0; rank < size_; ++rank) {
        const Part part = pieces.parts[static_cast<std::size_t>(rank)];
        copy_in_place(operation.output + part.begin, arrays_[static_cast<std::size_t>(rank)],
                      part.size);
      }
      break;
    default:
      if (rank_ != operation.peer)
        copy_in_place(operation.output, arrays_[static_cast<std::size_t>(operation.peer)],
                      bytes_of(operation, operation.count));
  }
  meet();
  // An owner that has come there and given up may have used its memory anew while this rank read.
  if (operation.kind != OperationKind::all_reduce) waiting_.check_aborted();
  offered_.reset();
}

// Sums what lies at an offset in the arrays of all ranks.
void ShmExecutor::fold_arrays(const Operation& operation, Bytes offset, std::byte* result,
                              Bytes bytes) {
  sources_.clear();
  for (const std::byte* const array : arrays_) sources_.push_back(array + offset);
  host::fold(operation.dtype, operation.reduction.kind, {sources_, factors_}, result,
             bytes / bytes_of(operation, 1));
}

// Each rank sums a share, and writes every copy of it.
void ShmExecutor::all_reduce_in_place(const Operation& operation) {
  const Bytes total = bytes_of(operation, operation.count);
  const Bytes lines = (total + line - 1) / line;
  const Bytes share = (lines + size_ - 1) / size_ * line;
  const Bytes end = std::min(total, share * (rank_ + 1));
  for (Bytes begin = std::min(total, share * rank_); begin < end; begin += sum_piece) {
    waiting_.check_aborted();
    const Bytes size = std::min(sum_piece, end - begin);
    std::byte* const sums = arrays_[static_cast<std::size_t>(rank_)] + begin;
    fold_arrays(operation, begin, sums, size);
    for (std::byte* const array : arrays_)
      if (array + begin != sums) std::memcpy(array + begin, sums, static_cast<std::size_t>(size));
  }
}

void ShmExecutor::copy_in_place(std::byte* to, const std::byte* from, Bytes bytes) {
  for (Bytes begin = 0; begin < bytes && to != from; begin += copy_piece) {
    waiting_.check_aborted();
    std::memcpy(to + begin, from + begin,
                static_cast<std::size_t>(std::min(copy_piece, bytes - begin)));
  }
}

}  // namespace lockstep::comm::shm
