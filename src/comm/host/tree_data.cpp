#include "comm/host/tree_data.hpp"

#include "comm/host/fold_partial.hpp"
#include "comm/host/pieces.hpp"

namespace lockstep::comm::host {
std::int64_t FoldData::bytes_from(int, int) const {
  return operation_.count * static_cast<std::int64_t>(size_of(
                                partial_dtype(operation_.dtype, operation_.reduction.kind)));
}

std::int64_t FoldData::result_bytes() const { return bytes_of(operation_, operation_.count); }

void FoldData::begin(std::byte* partial) const {
  begin_partial(operation_.dtype, operation_.reduction, operation_.input, partial,
                operation_.count);
}

void FoldData::take(std::byte* partial, const std::byte* from, int, int) const {
  combine_partial(operation_.dtype, operation_.reduction, partial, from, operation_.count);
}

void FoldData::finish(std::byte* partial, std::byte* result) const {
  finish_partial(operation_.dtype, operation_.reduction, ranks_, partial, result, operation_.count);
}

std::int64_t GatherData::bytes_from(int first, int end) const {
  return begin_of(end) - begin_of(first);
}

void GatherData::begin(std::byte* partial) const {
  copy_bytes(partial, own_, bytes_from(rank_, rank_ + 1));
}

void GatherData::take(std::byte* partial, const std::byte* from, int first, int end) const {
  copy_bytes(partial + bytes_from(rank_, first), from, bytes_from(first, end));
}

void GatherData::finish(std::byte* partial, std::byte* result) const {
  copy_bytes(result, partial, result_bytes());
}

void RootData::begin(std::byte* partial) const {
  if (rank_ == root_) copy_bytes(partial, own_, bytes_);
}

void RootData::take(std::byte* partial, const std::byte* from, int first, int end) const {
  copy_bytes(partial, from, bytes_from(first, end));
}

void RootData::finish(std::byte* partial, std::byte* result) const {
  copy_bytes(result, partial, bytes_);
}

}  // namespace lockstep::comm::host
