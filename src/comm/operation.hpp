#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/reduce_op.hpp"
#include "lockstep/core/dtype.hpp"
#include "lockstep/runtime/stream.hpp"

namespace lockstep::comm {

enum class OperationKind : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  send,
  receive,
  barrier
};

/// The call that makes such an operation, for messages.
constexpr const char* name_of(OperationKind kind) {
  constexpr const char* names[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                   "all_to_all", "send",           "receive",    "barrier"};
  return names[static_cast<int>(kind)];
}

/// One collective as submitted: all that its execution needs.
struct Operation {
  OperationKind kind = OperationKind::barrier;
  DType dtype = DType::u8;
  ReduceOp reduction = {};
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::int64_t count = 0;                 ///< elements of the whole array
  int peer = 0;                           ///< root, destination or source
  std::vector<std::int64_t> counts = {};  ///< parts of reduce_scatter and all_gather
  std::string label = {};
  CollectiveId id = {};
  std::chrono::milliseconds timeout{};
  std::uint64_t sequence = 0;
  /// Launched with the graph of a captured step: on all ranks, or on none.
  bool captured = false;
  /// Label and id of such a launch; see CollectiveOptions.
  std::function<void(std::string&, CollectiveId&)> renew = nullptr;
  /// Of one in a batch: the stream on which it was called; it begins after what that held.
  std::optional<StreamRef> stream = std::nullopt;

  /// True for operations between two ranks only.
  bool is_point_to_point() const {
    return kind == OperationKind::send || kind == OperationKind::receive;
  }
};

/// Gives operations their places: collectives count up `next`, sends and receives bear the number
/// of the collective that they come before.
inline void number(std::span<Operation> operations, std::uint64_t& next) {
  for (Operation& operation : operations)
    operation.sequence = operation.is_point_to_point() ? next : next++;
}

/// How long operations that start as one may take: the longest of their timeouts.
inline std::chrono::milliseconds timeout_of(std::span<const Operation> operations) {
  std::chrono::milliseconds longest{};
  for (const Operation& operation : operations) longest = std::max(longest, operation.timeout);
  return longest;
}

/// The ranks that operations exchange messages with by themselves: those of sends and receives.
inline std::vector<int> partners_of(std::span<const Operation> operations) {
  std::vector<int> ranks;
  for (const Operation& operation : operations)
    if (operation.is_point_to_point()) ranks.push_back(operation.peer);
  return ranks;
}

/// The number of the last collective among them, if there is one.
inline std::optional<std::uint64_t> last_collective(std::span<const Operation> operations) {
  std::optional<std::uint64_t> last;
  for (const Operation& operation : operations)
    if (!operation.is_point_to_point()) last = operation.sequence;
  return last;
}

}  // namespace lockstep::comm
