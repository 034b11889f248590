#include <algorithm>
#include <cstring>

#include "comm/hier/hier_executor.hpp"
#include "comm/host/fold_partial.hpp"
#include "comm/host/pieces.hpp"

// Each collective as chunks that go through three stages: the ranks of a host gather what leaves
// it, leaders exchange that, and each host spreads what has come.

namespace lockstep::comm::hier {
namespace {

using Count = std::int64_t;
using host::copy_bytes;

// Long against what it takes to begin an exchange, short against the whole.
constexpr Count chunk_bytes = 1 << 20;

Count bytes_of(DType dtype, Count elements) {
  return elements * static_cast<Count>(size_of(dtype));
}

Count chunks_of(Count elements, Count chunk) { return (elements + chunk - 1) / chunk; }

std::byte* sized(std::vector<std::byte>& buffer, Count bytes) {
  if (buffer.size() < static_cast<std::size_t>(bytes))
    buffer.resize(static_cast<std::size_t>(bytes));
  return buffer.data();
}

// An operation of one part of the group, within one of all.
Operation part_of(const Operation& whole, OperationKind kind) {
  Operation part;
  part.kind = kind;
  part.sequence = whole.sequence;
  part.captured = whole.captured;
  return part;
}

Operation in_place(const Operation& whole, OperationKind kind, DType dtype, std::byte* data,
                   Count count) {
  Operation part = part_of(whole, kind);
  part.dtype = dtype;
  part.input = part.output = data;
  part.count = count;
  return part;
}

// Of partial results, in place.
Operation partial_of(const Operation& whole, OperationKind kind, std::byte* partial, Count count) {
  const DType dtype = host::partial_dtype(whole.dtype, whole.reduction.kind);
  Operation part = in_place(whole, kind, dtype, partial, count);
  part.reduction = host::partial_reduction(whole.reduction);
  return part;
}

}  // namespace

// --- what all hosts do alike ---------------------------------------------------------------------

void HierExecutor::run_collective(const Operation& operation, const host::Deadline& deadline) {
  has_arrived_ = false;
  if (check_signatures_) compare(operation);
  switch (operation.kind) {
    case OperationKind::all_reduce: return all_reduce(operation);
    case OperationKind::reduce_scatter: return reduce_scatter(operation);
    case OperationKind::all_gather: return all_gather(operation);
    case OperationKind::broadcast: return broadcast(operation);
    case OperationKind::all_to_all: return parts_.messages->run({&operation, 1}, deadline);
    default:
      if (!check_signatures_) barrier(operation);
  }
}

// Leaders find a difference, or none, in the same signatures, and their hosts hear of it.
void HierExecutor::compare(const Operation& operation) {
  gather_signatures(operation);
  auto differ = std::byte{!agree(signatures_)};
  broadcast_inside(operation, &differ, 1);
  if (differ == std::byte{0}) return;
  broadcast_inside(operation, reinterpret_cast<std::byte*>(signatures_.data()),
                   static_cast<Count>(signatures_.size() * sizeof(Signature)));
  std::vector<Signature> by_rank(signatures_.size());
  std::size_t place = 0;
  for (const auto& host : layout_.hosts)
    for (const int rank : host) by_rank[static_cast<std::size_t>(rank)] = signatures_[place++];
  require_agreement(by_rank, group_);
}

void HierExecutor::gather_signatures(const Operation& operation) {
  constexpr auto signature_bytes = static_cast<Count>(sizeof(Signature));
  Operation between = in_place(operation, OperationKind::all_gather, DType::u8,
                               reinterpret_cast<std::byte*>(signatures_.data()),
                               static_cast<Count>(signatures_.size()) * signature_bytes);
  std::byte* own = between.output;
  for (std::size_t host = 0; host < layout_.hosts.size(); ++host) {
    between.counts.push_back(static_cast<Count>(layout_.hosts[host].size()) * signature_bytes);
    if (host < static_cast<std::size_t>(layout_.host)) own += between.counts.back();
  }
  between.input = own;
  const Signature signature(operation);
  copy_bytes(own + layout_.place * signature_bytes, reinterpret_cast<const std::byte*>(&signature),
             signature_bytes);
  Operation inside = in_place(operation, OperationKind::all_gather, DType::u8, own,
                              between.counts[static_cast<std::size_t>(layout_.host)]);
  inside.input = own + layout_.place * signature_bytes;
  run_inside(inside);
  run_between(between);
}

void HierExecutor::broadcast_inside(const Operation& outer, std::byte* data, Count bytes,
                                    int root) {
  Operation operation = in_place(outer, OperationKind::broadcast, DType::u8, data, bytes);
  operation.peer = root;
  run_inside(operation);
}

// While leaders exchange one chunk, their hosts spread the one before and gather the next.
template <class Gather, class Between, class Spread>
void HierExecutor::in_chunks(Count chunks, Gather gather, Between between, Spread spread) {
  if (chunks == 1) {
    gather(0);
    if (parts_.between) run_between(between(0));
    return spread(0);
  }
  for (Count chunk = 0; chunk <= chunks; ++chunk) {
    if (chunk < chunks) {
      gather(chunk);
      if (parts_.between) start_between(between(chunk));
    }
    if (chunk == 0) continue;
    await_between(chunk < chunks ? 1 : 0);
    spread(chunk - 1);
  }
}

// --- collectives of arrays that all ranks have alike
// ----------------------------------------------

void HierExecutor::all_reduce(const Operation& operation) {
  const ReduceOp& reduction = operation.reduction;
  const DType partial = host::partial_dtype(operation.dtype, reduction.kind);
  const bool is_direct = partial == operation.dtype;
  const Count chunk = chunk_bytes / bytes_of(partial, 1);
  const auto size_of_chunk = [&](Count k) { return std::min(chunk, operation.count - k * chunk); };
  const auto result = [&](Count k) {
    return operation.output + bytes_of(operation.dtype, k * chunk);
  };
  const auto partials = [&](Count k) {
    return is_direct ? result(k) : sized(chunks_[k % 2], bytes_of(partial, chunk));
  };
  in_chunks(
      chunks_of(operation.count, chunk),
      [&](Count k) {
        const Count count = size_of_chunk(k);
        host::begin_partial(operation.dtype, reduction, result(k), partials(k), count);
        run_inside(partial_of(operation, OperationKind::all_reduce, partials(k), count));
      },
      [&](Count k) {
        return partial_of(operation, OperationKind::all_reduce, partials(k), size_of_chunk(k));
      },
      [&](Count k) {
        if (layout_.is_leader())
          host::finish_partial(operation.dtype, reduction, size(), partials(k), result(k),
                               size_of_chunk(k));
        broadcast_inside(operation, result(k), bytes_of(operation.dtype, size_of_chunk(k)));
      });
}

// The root's host has it before it leaves.
void HierExecutor::broadcast(const Operation& operation) {
  const Count total = bytes_of(operation.dtype, operation.count);
  const auto size_of_chunk = [&](Count k) {
    return std::min(chunk_bytes, total - k * chunk_bytes);
  };
  const auto home = std::ranges::find_if(layout_.hosts, [&](const auto& ranks) {
    return std::ranges::count(ranks, operation.peer) > 0;
  });
  const auto root_host = static_cast<int>(home - layout_.hosts.begin());
  const auto root = static_cast<int>(std::ranges::find(*home, operation.peer) - home->begin());
  in_chunks(
      chunks_of(total, chunk_bytes),
      [&](Count k) {
        if (layout_.host == root_host)
          broadcast_inside(operation, operation.output + k * chunk_bytes, size_of_chunk(k), root);
      },
      [&](Count k) {
        Operation between = in_place(operation, OperationKind::broadcast, DType::u8,
                                     operation.output + k * chunk_bytes, size_of_chunk(k));
        between.peer = root_host;
        return between;
      },
      [&](Count k) {
        if (layout_.host != root_host)
          broadcast_inside(operation, operation.output + k * chunk_bytes, size_of_chunk(k));
      });
}

void HierExecutor::barrier(const Operation& operation) {
  const Operation barrier = part_of(operation, OperationKind::barrier);
  run_inside(barrier);
  run_between(barrier);
  run_inside(barrier);
}

// --- collectives of arrays with a part for each rank
// -----------------------------------------------

host::Pieces HierExecutor::pieces_of(const Operation& operation, DType dtype) const {
  return {host::parts_of(operation, size()),
          std::max<Count>(1, chunk_bytes / bytes_of(dtype, size()))};
}

HierExecutor::Round HierExecutor::round_of(const Pieces& pieces, Count number) const {
  Round round;
  round.pieces.resize(pieces.parts.size());
  round.places.resize(pieces.parts.size());
  for (std::size_t host = 0; host < layout_.hosts.size(); ++host) {
    const Count begin = round.total;
    const bool is_own = static_cast<int>(host) == layout_.host;
    for (const int rank : layout_.hosts[host]) {
      const Part piece = pieces.piece_of(rank, number);
      round.pieces[static_cast<std::size_t>(rank)] = piece;
      round.places[static_cast<std::size_t>(rank)] = round.total;
      if (is_own) round.of_own_ranks.push_back(piece.size);
      round.total += piece.size;
    }
    round.of_hosts.push_back(round.total - begin);
    if (is_own) round.own = {begin, round.total - begin};
  }
  return round;
}

void HierExecutor::reduce_scatter(const Operation& operation) {
  const ReduceOp& reduction = operation.reduction;
  const DType dtype = operation.dtype, partial = host::partial_dtype(dtype, reduction.kind);
  const Pieces pieces = pieces_of(operation, partial);
  const auto self = static_cast<std::size_t>(rank());
  const auto partials = [&](Count k, Count elements) {
    return sized(chunks_[k % 2], bytes_of(partial, elements));
  };
  in_chunks(
      pieces.rounds,
      [&](Count k) {
        const Round round = round_of(pieces, k);
        std::byte* const all = partials(k, round.total);
        for (std::size_t r = 0; r < round.pieces.size(); ++r)
          host::begin_partial(dtype, reduction,
                              operation.input + bytes_of(dtype, round.pieces[r].begin),
                              all + bytes_of(partial, round.places[r]), round.pieces[r].size);
        run_inside(partial_of(operation, OperationKind::all_reduce, all, round.total));
      },
      [&](Count k) {
        const Round round = round_of(pieces, k);
        std::byte* const all = partials(k, round.total);
        Operation between = partial_of(operation, OperationKind::reduce_scatter, all, round.total);
        between.output = all + bytes_of(partial, round.own.begin);
        between.counts = round.of_hosts;
        return between;
      },
      [&](Count k) {
        const Round round = round_of(pieces, k);
        std::byte* const own = partials(k, round.total) + bytes_of(partial, round.own.begin);
        std::byte* const results = sized(results_, bytes_of(dtype, round.own.size));
        if (layout_.is_leader())
          host::finish_partial(dtype, reduction, size(), own, results, round.own.size);
        broadcast_inside(operation, results, bytes_of(dtype, round.own.size));
        const Part piece = round.pieces[self];
        copy_bytes(operation.output + bytes_of(dtype, piece.begin - pieces.parts[self].begin),
                   results + bytes_of(dtype, round.places[self] - round.own.begin),
                   bytes_of(dtype, piece.size));
      });
}

void HierExecutor::all_gather(const Operation& operation) {
  const DType dtype = operation.dtype;
  const Pieces pieces = pieces_of(operation, dtype);
  const auto self = static_cast<std::size_t>(rank());
  const auto room = [&](Count k, const Round& round) {
    return sized(chunks_[k % 2], bytes_of(dtype, round.total));
  };
  in_chunks(
      pieces.rounds,
      [&](Count k) {
        const Round round = round_of(pieces, k);
        std::byte* const own = room(k, round) + bytes_of(dtype, round.own.begin);
        std::byte* const place = room(k, round) + bytes_of(dtype, round.places[self]);
        const Part piece = round.pieces[self];
        copy_bytes(place, operation.input + bytes_of(dtype, piece.begin - pieces.parts[self].begin),
                   bytes_of(dtype, piece.size));
        Operation inside =
            in_place(operation, OperationKind::all_gather, dtype, own, round.own.size);
        inside.input = place;
        inside.counts = round.of_own_ranks;
        run_inside(inside);
      },
      [&](Count k) {
        const Round round = round_of(pieces, k);
        std::byte* const all = room(k, round);
        Operation between = in_place(operation, OperationKind::all_gather, dtype, all, round.total);
        between.input = all + bytes_of(dtype, round.own.begin);
        between.counts = round.of_hosts;
        return between;
      },
      [&](Count k) {
        const Round round = round_of(pieces, k);
        std::byte* const all = room(k, round);
        broadcast_inside(operation, all, bytes_of(dtype, round.total));
        for (std::size_t r = 0; r < round.pieces.size(); ++r)
          copy_bytes(operation.output + bytes_of(dtype, round.pieces[r].begin),
                     all + bytes_of(dtype, round.places[r]), bytes_of(dtype, round.pieces[r].size));
      });
}

}  // namespace lockstep::comm::hier
