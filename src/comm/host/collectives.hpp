#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/host/transport.hpp"
#include "comm/operation.hpp"
#include "comm/signature.hpp"

namespace lockstep::comm::host {

/// Runs collectives over a transport: signatures first, then the data in pieces. Sums are taken by
/// the tree of `fold` on the rank that owns a part, so all ranks, backends and message sizes give
/// the same bits. Used by one thread at a time.
class Collectives {
 public:
  /// @param transport outlives this object.
  /// @param group name for messages.
  Collectives(Transport& transport, std::string group, bool check_signatures);

  /// Runs operations that start as one to their end: sends and receives side by side, then the
  /// collectives. @throws Mismatch, TransferTimeout, or the transport's errors.
  void run(std::span<const Operation> operations, const Deadline& deadline);

  /// After a Mismatch: true if what each rank called last is an operation of all ranks, so that
  /// each has seen the others' signatures.
  bool all_are_collective() const;

  /// Gives this object's buffers away for good, because messages that never ended may still use
  /// them. Nothing can be run afterwards.
  void abandon_buffers();

 private:
  struct Part {
    std::int64_t begin, size;
  };
  // How the array is cut: a part for each rank, moved in rounds of one piece of each part.
  struct Plan {
    std::vector<Part> parts;
    std::int64_t piece, rounds, element_bytes;
    Part piece_of(int rank, std::int64_t round) const;
  };

  // Payloads up to this size travel with the signature, in one message.
  static constexpr std::size_t eager_limit = 8192;
  static constexpr std::size_t slot_bytes = sizeof(Signature) + eager_limit;
  static_assert(sizeof(Signature) % 8 == 0 && slot_bytes % 8 == 0);

  // What comes from one rank in a batch, and how much of it has come.
  struct Inbound {
    std::vector<const Operation*> receives;
    std::size_t current = 0;
    bool has_signature = false;
    std::int64_t received = 0;  // bytes of the current one's data
  };

  static std::int64_t offset_bytes(const Operation& operation, std::int64_t elements) {
    return elements * static_cast<std::int64_t>(size_of(operation.dtype));
  }
  bool is_eager(std::size_t bytes) const;
  std::byte* slot(int rank);
  static std::size_t write_signature(const Operation& operation, std::span<const std::byte> payload,
                                     std::byte* to);
  void read_signature(int rank, std::size_t received);
  void exchange_signatures(const Operation& operation, std::span<const std::byte> payload);
  const std::byte* payload_of(int rank, std::int64_t expected_bytes);

  void run_small(const Operation& operation);
  void fold_payloads(const Operation& operation, std::int64_t begin, std::int64_t count);

  std::vector<Part> parts_of(const Operation& operation) const;
  Plan plan_of(const Operation& operation) const;
  void queue_scatter(const Operation& operation, const Plan& plan, std::int64_t round);
  void queue_gather(const Operation& operation, const Plan& plan, std::int64_t round);
  void fold_piece(const Operation& operation, const std::byte* own, std::byte* result,
                  std::int64_t count);
  void all_reduce(const Operation& operation);
  void reduce_scatter(const Operation& operation);
  void all_gather(const Operation& operation);
  void broadcast(const Operation& operation);
  void all_to_all(const Operation& operation);

  void exchange_pairs(std::span<const Operation> operations);
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
  WaitOptions wait_options_{};
  std::vector<std::byte> slots_;       // one slot a rank: signature, then a small payload
  std::vector<std::byte> send_slots_;  // of a batch: one slot a send
  std::vector<Inbound> inbound_;       // of a batch: one a source, as in `in_`
  std::vector<std::size_t> payload_sizes_;
  std::vector<Signature> signatures_;
  std::vector<double> factors_;
  std::vector<std::byte> scratch_;  // one piece a rank
  std::vector<const std::byte*> sources_;
  std::vector<Outgoing> out_;
  std::vector<Incoming> in_;
};

}  // namespace lockstep::comm::host
