#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "comm/host/pieces.hpp"
#include "comm/host/transport.hpp"
#include "comm/host/tree_exchange.hpp"
#include "comm/operation.hpp"
#include "comm/signature.hpp"

namespace lockstep::comm::host {

/// Runs collectives over a transport: signatures first, then the data in pieces. Sums are taken by
/// the tree of `fold` on the rank that owns a part, so all ranks, backends and message sizes give
/// the same bits. Used by one thread at a time.
///
/// In small groups each rank tells all others its signature, with the data if they are small. In
/// larger ones signatures and small data go over a tree (TreeExchange), and only ranks that
/// disagree tell all others theirs, to say who called what (ADR 0029).
class Collectives {
 public:
  /// The largest group in which each rank tells all others.
  static constexpr int most_direct_ranks = 8;

  /// @param transport outlives this object.
  /// @param group name for messages.
  Collectives(Transport& transport, std::string group, bool check_signatures,
              int direct_ranks = most_direct_ranks);

  /// Runs operations that start as one to their end: sends and receives side by side, then the
  /// collectives. @throws Mismatch, TransferTimeout, or the transport's errors.
  void run(std::span<const Operation> operations, const Deadline& deadline);

  /// After a Mismatch: true if what each rank called last is an operation of all ranks, and each
  /// has seen the others' signatures.
  bool has_seen_all() const { return has_seen_all_; }

  /// Gives this object's buffers away for good, because messages that never ended may still use
  /// them. Nothing can be run afterwards.
  void abandon_buffers();

 private:
  // Payloads up to this size travel with the signature, in one message.
  static constexpr std::size_t eager_limit = 8192;
  // Over a tree: twice that of partial results, which 16-bit floats take twice their size for.
  static constexpr std::int64_t tree_limit = 16384;
  // All pieces that come from other ranks at a time, together.
  static constexpr std::size_t scratch_limit = 8 << 20;
  static constexpr std::size_t slot_bytes = sizeof(Signature) + eager_limit;
  static_assert(sizeof(Signature) % 8 == 0 && slot_bytes % 8 == 0);

  // What comes from one rank in a batch, and how much of it has come.
  struct Inbound {
    std::vector<const Operation*> receives;
    std::byte* slot = nullptr;
    std::size_t current = 0;
    bool has_signature = false;
    std::int64_t received = 0;  // bytes of the current one's data
  };

  bool is_eager(std::size_t bytes) const;
  std::byte* slot(int rank);
  static std::size_t write_signature(const Signature& own, std::span<const std::byte> payload,
                                     std::byte* to);
  Signature signature_in(const std::byte* message, int rank, std::size_t received) const;
  void require_payload(int rank, const Signature& signature, std::size_t size,
                       std::int64_t expected_bytes) const;
  void read_signature(int rank, std::size_t received);
  void exchange_signatures(const Operation& operation, std::span<const std::byte> payload);
  const std::byte* payload_of(int rank, std::int64_t expected_bytes);

  void run_small(const Operation& operation);
  void run_over_tree(const Operation& operation);
  bool is_small_over_tree(const Operation& operation) const;
  void run_small_over_tree(const Operation& operation);
  void agree_over_tree(const Operation& operation);
  void exchange_over_tree(const Operation& operation, const TreeData& data);
  GatherData gathered_parts(const Operation& operation) const;
  void all_to_all_in_steps(const Operation& operation);
  void run_large(const Operation& operation);
  void note_message(int from, int to, bool is_sent);
  void fold_payloads(const Operation& operation, std::int64_t begin, std::int64_t count);

  Pieces pieces_of(const Operation& operation) const;
  void queue_scatter(const Operation& operation, const Pieces& pieces, std::int64_t round);
  void queue_gather(const Operation& operation, const Pieces& pieces, std::int64_t round);
  void fold_piece(const Operation& operation, const std::byte* own, std::byte* result,
                  std::int64_t count);
  void all_reduce(const Operation& operation);
  void reduce_scatter(const Operation& operation);
  void all_gather(const Operation& operation);
  void broadcast(const Operation& operation);
  void all_to_all(const Operation& operation);

  void exchange_pairs(std::span<const Operation> operations);
  Signature pair_signature_of(const Operation& operation) const;
  void queue_pair_send(const Operation& operation, std::byte* send_slot);
  void queue_pair_receive(const Operation& operation);
  bool take_in(Inbound& inbound, Incoming& message);
  void take_signature(Inbound& inbound, const Operation& operation, std::size_t size);

  bool is_identity(const Operation& operation) const;
  void run_collective(const Operation& operation);
  void queue_send(int peer, const std::byte* data, std::int64_t bytes);
  void queue_receive(int peer, std::byte* room, std::int64_t bytes);
  void clear_queues();
  void transfer();
  void require_full(const Incoming& message) const;
  std::byte* scratch(int peer);

  Transport& transport_;
  std::string group_;
  bool check_signatures_;
  int rank_, size_;
  std::size_t piece_bytes_;
  TreeExchange tree_;
  bool is_direct_;
  bool has_seen_all_ = false;
  WaitOptions wait_options_{};
  std::vector<std::byte> slots_;       // one a rank, or of a batch one a source: see slot_bytes
  std::vector<std::byte> send_slots_;  // of a batch: one slot a send
  std::vector<Inbound> inbound_;       // of a batch: one a source, as in `in_`
  std::uint64_t pairs_place_ = 0;      // of a batch: how many collectives come before its messages
  std::vector<std::size_t> payload_sizes_;
  std::vector<Signature> signatures_;
  std::vector<double> factors_;
  std::vector<std::byte> scratch_;  // one piece a rank, or all blocks of a small all_to_all
  // Messages between this rank and one other so far: what was received, less what was sent, as a
  // number that is zero over all ranks if each was received.
  std::uint64_t unreceived_ = 0;
  std::map<int, std::uint64_t> sent_, received_;
  std::vector<const std::byte*> sources_;
  std::vector<Outgoing> out_;
  std::vector<Incoming> in_;
};

}  // namespace lockstep::comm::host
