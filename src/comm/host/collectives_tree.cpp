#include <algorithm>
#include <cstring>

#include "comm/host/collectives.hpp"
#include "comm/host/fold_partial.hpp"
#include "lockstep/comm/errors.hpp"

// Larger groups: signatures, and the data of small operations, over a tree.

namespace lockstep::comm::host {
void Collectives::run_over_tree(const Operation& operation) {
  if (is_small_over_tree(operation)) return run_small_over_tree(operation);
  agree_over_tree(operation);
  run_large(operation);
}

bool Collectives::is_small_over_tree(const Operation& operation) const {
  const auto total = bytes_of(operation, operation.count);
  switch (operation.kind) {
    case OperationKind::barrier: return true;
    case OperationKind::all_reduce:
    case OperationKind::reduce_scatter:
      return operation.count * static_cast<std::int64_t>(size_of(
                                   partial_dtype(operation.dtype, operation.reduction.kind))) <=
             tree_limit;
    default: return is_eager(static_cast<std::size_t>(total));
  }
}

// Ranks that disagree tell all others what they called. Whoever saw no difference then, because it
// is in a message to another rank, ends all the same.
void Collectives::exchange_over_tree(const Operation& operation, const TreeData& data) {
  has_seen_all_ = false;
  if (tree_.run(operation, unreceived_, data, wait_options_)) return;
  exchange_signatures(operation, {});
  LOCKSTEP_THROW(comm::Mismatch, "before ", Signature(operation).describe(), " ranks of ", group_,
                 " have sent messages to single ranks that these have not received");
}

void Collectives::agree_over_tree(const Operation& operation) {
  if (operation.reduction.kind != ReduceKind::scaled_sum) {
    if (check_signatures_) exchange_over_tree(operation, NoData());
    return;
  }
  constexpr std::int64_t size = sizeof(double);
  std::vector<std::int64_t> begins;
  for (std::int64_t rank = 0; rank <= size_; ++rank) begins.push_back(rank * size);
  const auto* own = reinterpret_cast<const std::byte*>(&operation.reduction.factor);
  exchange_over_tree(operation, GatherData(rank_, own, std::move(begins)));
  copy_bytes(reinterpret_cast<std::byte*>(factors_.data()), tree_.result(), size * size_);
}

GatherData Collectives::gathered_parts(const Operation& operation) const {
  std::vector<std::int64_t> begins;
  for (const Part& part : parts_of(operation, size_))
    begins.push_back(bytes_of(operation, part.begin));
  begins.push_back(bytes_of(operation, operation.count));
  return {rank_, operation.input, std::move(begins)};
}

void Collectives::run_small_over_tree(const Operation& operation) {
  const auto total = bytes_of(operation, operation.count);
  switch (operation.kind) {
    case OperationKind::all_reduce:
      exchange_over_tree(operation, FoldData(operation, size_));
      return copy_bytes(operation.output, tree_.result(), total);
    case OperationKind::reduce_scatter: {
      const Part own = parts_of(operation, size_)[static_cast<std::size_t>(rank_)];
      exchange_over_tree(operation, FoldData(operation, size_));
      return copy_bytes(operation.output, tree_.result() + bytes_of(operation, own.begin),
                        bytes_of(operation, own.size));
    }
    case OperationKind::broadcast:
      exchange_over_tree(operation, RootData(rank_, operation.peer, operation.input, total));
      if (rank_ != operation.peer) copy_bytes(operation.output, tree_.result(), total);
      return;
    case OperationKind::all_gather:
      exchange_over_tree(operation, gathered_parts(operation));
      return copy_bytes(operation.output, tree_.result(), total);
    case OperationKind::all_to_all:
      if (check_signatures_) exchange_over_tree(operation, NoData());
      return all_to_all_in_steps(operation);
    default: return exchange_over_tree(operation, NoData());
  }
}

// Bruck et al. 1997. Block i is on its way to the rank that is i places further; it goes on where i
// has the bit of the step.
void Collectives::all_to_all_in_steps(const Operation& operation) {
  const auto block = static_cast<std::size_t>(bytes_of(operation, operation.count)) /
                     static_cast<std::size_t>(size_);
  if (block == 0) return;
  const auto ranks = static_cast<std::size_t>(size_), rank = static_cast<std::size_t>(rank_);
  if (scratch_.size() < 3 * ranks * block) scratch_.resize(3 * ranks * block);
  std::byte* const blocks = scratch_.data();
  std::byte* const out = blocks + ranks * block;
  std::byte* const in = out + ranks * block;
  for (std::size_t i = 0; i < ranks; ++i)
    std::memcpy(blocks + i * block, operation.input + (rank + i) % ranks * block, block);
  for (std::size_t step = 1; step < ranks; step *= 2) {
    std::size_t moved = 0;
    for (std::size_t i = 0; i < ranks; ++i)
      if (i & step) std::memcpy(out + block * moved++, blocks + i * block, block);
    queue_send(static_cast<int>((rank + step) % ranks), out,
               static_cast<std::int64_t>(moved * block));
    queue_receive(static_cast<int>((rank + ranks - step) % ranks), in,
                  static_cast<std::int64_t>(moved * block));
    transfer();
    moved = 0;
    for (std::size_t i = 0; i < ranks; ++i)
      if (i & step) std::memcpy(blocks + i * block, in + block * moved++, block);
  }
  for (std::size_t i = 0; i < ranks; ++i)
    std::memcpy(operation.output + (rank + ranks - i) % ranks * block, blocks + i * block, block);
}

}  // namespace lockstep::comm::host
