#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/operation.hpp"
#include "nccl/call_exchange.hpp"

/// @file
/// One collective, send or receive of one rank.

namespace simgpu::nccl {

/// What the program asked for.
struct Arguments {
  Signature signature;
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
  const std::byte* device_factor = nullptr;  ///< of a pre-multiplied sum, read when it runs
};

/// The memory that the call reads and writes on a rank.
std::vector<Access> accesses_of(const Arguments& arguments, int rank, int size);

/// Numbers of a rank's next calls.
struct Counters {
  explicit Counters(int size)
      : sends(static_cast<std::size_t>(size)), receives(static_cast<std::size_t>(size)) {}
  std::uint64_t collectives = 0;
  std::vector<std::uint64_t> sends, receives;  // by peer

  /// The number of this call, and counts it.
  std::uint64_t take(const Signature& signature);
};

/// A call under way: shows what the rank contributes, waits until the others have shown theirs,
/// does the arithmetic. Polled by the executor.
class Call {
 public:
  enum class Progress : unsigned char { waiting, done, mismatched };

  Call(const Arguments& arguments, std::uint64_t number, CallExchange& exchange);

  /// Goes as far as it can without waiting. Once mismatched, it stays so.
  Progress advance();
  /// The ranks whose part has not come.
  std::vector<int> missing() const;
  /// What a rank called in this place; null if it has not come.
  const Signature* called_by(int rank) const;
  /// Once it is done, but for messages: whether each rank has registered its buffers.
  const std::vector<bool>& registered_by_rank() const { return registered_by_rank_; }
  const Signature& signature() const { return arguments_.signature; }
  std::uint64_t number() const { return number_; }
  bool is_mismatched() const { return is_mismatched_; }

 private:
  std::span<const std::byte> contribution() const;
  bool collect();
  Progress advance_send();
  Progress advance_receive();
  void finish();
  void finish_reduction(std::size_t first, std::size_t count);
  void copy_from(int rank, std::size_t offset, std::size_t bytes, std::byte* to);
  bool is_root() const { return arguments_.signature.root == exchange_.rank(); }
  std::size_t bytes() const;

  Arguments arguments_;
  std::uint64_t number_;
  CallExchange& exchange_;
  bool is_published_ = false, is_mismatched_ = false;
  std::vector<bool> registered_by_rank_;
  std::vector<CallExchange::Seen> seen_;  // by rank; own: what the program gave
};

}  // namespace simgpu::nccl
