#include "nccl/call.hpp"

#include <cstring>

#include "nccl/reduction.hpp"

namespace simgpu::nccl {
namespace {

// Elements that a rank gives and gets, in units of the call's count.
struct Extent {
  std::size_t read, written;
};

Extent extent_of(const Signature& signature, int rank, int size) {
  const auto all = static_cast<std::size_t>(size);
  const std::size_t root = signature.root == rank ? 1 : 0;
  switch (signature.function) {
    case Function::all_reduce: return {1, 1};
    case Function::reduce: return {1, root};
    case Function::reduce_scatter: return {all, 1};
    case Function::all_gather: return {1, all};
    case Function::broadcast: return {root, 1};
    case Function::all_to_all: return {all, all};
    case Function::gather: return {1, root * all};
    case Function::scatter: return {root * all, 1};
    case Function::send: return {1, 0};
    case Function::receive: return {0, 1};
    case Function::management: break;
  }
  return {0, 0};
}

std::size_t bytes_of(const Signature& signature) {
  return signature.count * size_of(static_cast<ncclDataType_t>(signature.type));
}

}  // namespace

std::vector<Access> accesses_of(const Arguments& arguments, int rank, int size) {
  const Signature& signature = arguments.signature;
  const Extent extent = extent_of(signature, rank, size);
  const std::size_t bytes = bytes_of(signature);
  std::vector<Access> accesses;
  if (extent.read * bytes > 0) accesses.push_back({arguments.send, extent.read * bytes, false});
  if (extent.written * bytes > 0)
    accesses.push_back({arguments.receive, extent.written * bytes, true});
  if (arguments.device_factor)
    accesses.push_back(
        {arguments.device_factor, size_of(static_cast<ncclDataType_t>(signature.type)), false});
  return accesses;
}

std::uint64_t Counters::take(const Signature& signature) {
  const auto peer = static_cast<std::size_t>(signature.root);
  if (signature.function == Function::send) return sends[peer]++;
  if (signature.function == Function::receive) return receives[peer]++;
  return collectives++;
}

Call::Call(const Arguments& arguments, std::uint64_t number, CallExchange& exchange)
    : arguments_(arguments),
      number_(number),
      exchange_(exchange),
      seen_(static_cast<std::size_t>(exchange.size())) {
  if (arguments_.device_factor)
    std::memcpy(&arguments_.signature.factor, arguments_.device_factor,
                size_of(static_cast<ncclDataType_t>(arguments_.signature.type)));
}

std::size_t Call::bytes() const { return bytes_of(arguments_.signature); }

// What the other ranks need of this one.
std::span<const std::byte> Call::contribution() const {
  const Function function = arguments_.signature.function;
  if ((function == Function::reduce || function == Function::gather) && is_root()) return {};
  return {arguments_.send,
          extent_of(arguments_.signature, exchange_.rank(), exchange_.size()).read * bytes()};
}

Call::Progress Call::advance() {
  if (is_mismatched_) {
    collect();  // those who come later are part of the story
    return Progress::mismatched;
  }
  if (arguments_.signature.function == Function::send) return advance_send();
  if (arguments_.signature.function == Function::receive) return advance_receive();
  if (!is_published_)
    is_published_ = exchange_.publish(collectives, number_, arguments_.signature, contribution());
  const bool are_all_here = collect() && is_published_;
  if (is_mismatched_) return Progress::mismatched;
  if (!are_all_here) return Progress::waiting;
  for (const CallExchange::Seen& seen : seen_)
    registered_by_rank_.push_back(seen.signature->is_registered);
  finish();
  for (int rank = 0; rank < exchange_.size(); ++rank)
    if (rank != exchange_.rank()) exchange_.release(rank, collectives, number_);
  return Progress::done;
}

Call::Progress Call::advance_send() {
  const Channel channel = point_to_point(arguments_.signature.root);
  if (!is_published_) {
    is_published_ = exchange_.publish(channel, number_, arguments_.signature, contribution());
    return Progress::waiting;
  }
  return exchange_.is_taken(channel, number_) ? Progress::done : Progress::waiting;
}

Call::Progress Call::advance_receive() {
  const int from = arguments_.signature.root;
  const Channel channel = point_to_point(exchange_.rank());
  const auto seen = exchange_.find(from, channel, number_);
  if (!seen) return Progress::waiting;
  seen_[static_cast<std::size_t>(from)] = *seen;
  is_mismatched_ = seen->signature->type != arguments_.signature.type ||
                   seen->signature->count != arguments_.signature.count;
  if (is_mismatched_) return Progress::mismatched;
  if (bytes() > 0) std::memcpy(arguments_.receive, seen->data, bytes());
  exchange_.release(from, channel, number_);
  return Progress::done;
}

// Looks for slots of the ranks that are missing; true if there are none missing.
bool Call::collect() {
  if (is_point_to_point(arguments_.signature.function)) return true;
  bool are_all_here = true;
  for (int rank = 0; rank < exchange_.size(); ++rank) {
    CallExchange::Seen& seen = seen_[static_cast<std::size_t>(rank)];
    if (seen.signature) continue;
    if (rank == exchange_.rank())
      seen = {&arguments_.signature, arguments_.send, 0};
    else if (const auto found = exchange_.find(rank, collectives, number_))
      seen = *found;
    if (!seen.signature)
      are_all_here = false;
    else if (!match(*seen.signature, arguments_.signature))
      is_mismatched_ = true;
  }
  return are_all_here;
}

void Call::copy_from(int rank, std::size_t offset, std::size_t bytes, std::byte* to) {
  const std::byte* from = seen_[static_cast<std::size_t>(rank)].data + offset;
  if (bytes > 0 && from != to) std::memmove(to, from, bytes);
}

void Call::finish_reduction(std::size_t first, std::size_t count) {
  std::vector<Contribution> ranks;
  const std::size_t offset =
      first * size_of(static_cast<ncclDataType_t>(arguments_.signature.type));
  for (const CallExchange::Seen& seen : seen_)
    ranks.push_back({seen.data + offset, seen.signature->factor});
  reduce(static_cast<ncclDataType_t>(arguments_.signature.type), arguments_.signature.op, ranks,
         count, arguments_.receive);
}

void Call::finish() {
  const Signature& signature = arguments_.signature;
  const auto own = static_cast<std::size_t>(exchange_.rank());
  const std::size_t part = bytes();
  if (part == 0) return;
  const auto copy_from_all = [&](std::size_t offset) {
    for (int rank = 0; rank < exchange_.size(); ++rank)
      copy_from(rank, offset, part, arguments_.receive + static_cast<std::size_t>(rank) * part);
  };
  switch (signature.function) {
    case Function::all_reduce: return finish_reduction(0, signature.count);
    case Function::reduce: return is_root() ? finish_reduction(0, signature.count) : void();
    case Function::reduce_scatter: return finish_reduction(own * signature.count, signature.count);
    case Function::all_gather: return copy_from_all(0);
    case Function::all_to_all: return copy_from_all(own * part);
    case Function::gather: return is_root() ? copy_from_all(0) : void();
    case Function::broadcast: return copy_from(signature.root, 0, part, arguments_.receive);
    case Function::scatter: return copy_from(signature.root, own * part, part, arguments_.receive);
    default: return;
  }
}

std::vector<int> Call::missing() const {
  std::vector<int> ranks;
  const auto is_missing = [this](int rank) {
    return rank != exchange_.rank() && !seen_[static_cast<std::size_t>(rank)].signature;
  };
  if (is_point_to_point(arguments_.signature.function)) {
    if (is_missing(arguments_.signature.root)) ranks.push_back(arguments_.signature.root);
    return ranks;
  }
  for (int rank = 0; rank < exchange_.size(); ++rank)
    if (is_missing(rank)) ranks.push_back(rank);
  return ranks;
}

const Signature* Call::called_by(int rank) const {
  return rank == exchange_.rank() ? &arguments_.signature
                                  : seen_[static_cast<std::size_t>(rank)].signature;
}

}  // namespace simgpu::nccl
