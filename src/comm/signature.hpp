#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "comm/operation.hpp"

namespace lockstep::comm {

/// What a rank tells the others before a collective: enough to see that all mean the same one.
/// Crosses the wire as it is, between processes of one job.
struct Signature {
  std::uint64_t magic = expected_magic;
  std::uint64_t sequence = 0;
  std::int64_t count = 0;
  std::uint64_t counts_hash = 0;
  std::uint64_t label_hash = 0;
  CollectiveId id;
  double factor = 1.0;  ///< of a scaled sum; may differ between ranks
  std::int32_t peer = 0;
  OperationKind kind = OperationKind::barrier;
  DType dtype = DType::u8;
  ReduceKind reduction = ReduceKind::sum;
  std::uint8_t label_size = 0;
  /// Not 0: launched with a graph, which NCCL wants on all ranks alike. No bool: any byte may come.
  std::uint8_t captured = 0;
  char label[247] = {};  ///< as much of it as there is room for, for the other ranks' messages

  static constexpr std::uint64_t expected_magic = 0x6C6F636B73746570;  // "lockstep"

  Signature() = default;
  explicit Signature(const Operation& operation);

  /// True if it is of a message between two ranks.
  bool is_point_to_point() const {
    return kind == OperationKind::send || kind == OperationKind::receive;
  }
  /// True if two ranks mean the same collective. Labels count only where both give one.
  bool agrees_with(const Signature& other) const;
  /// True if one is the send and the other the receive of the same elements.
  bool pairs_with(const Signature& other) const;
  /// True if both have the same label, or one has none.
  bool has_label_of(const Signature& other) const;
  /// "all_reduce #12 of 1024 f32 (sum) 'bucket 3'".
  std::string describe() const { return describe(short_label()); }
  /// The same with the whole label, which is not in here.
  std::string describe(std::string_view whole_label) const;
  /// The label, or its beginning.
  std::string_view short_label() const;
  /// True if the label is longer than that.
  static bool is_cut(std::string_view whole_label) { return whole_label.size() > sizeof(label); }

 private:
  void set_label(std::string_view text);
};

/// What operations that start as one are: the first, and how many follow.
/// @param label the whole one of the first.
std::string describe(const Signature& first, std::size_t operations, std::string_view label);
inline std::string describe(const Signature& first, std::size_t operations) {
  return describe(first, operations, first.short_label());
}
inline std::string describe(std::span<const Operation> operations) {
  return describe(Signature(operations.front()), operations.size());
}
/// The same with the whole label, which may take thousands of bytes: for what this rank says of its
/// own operation.
inline std::string describe_in_full(std::span<const Operation> operations) {
  return describe(Signature(operations.front()), operations.size(), operations.front().label);
}

/// What two ranks called that mean different messages, for people.
std::string describe_mismatch(const std::string& group, int rank, const Signature& own, int peer,
                              const Signature& theirs);

/// What differs first in the message of a disagreement: `"lr 0.1," on rank 0, "lr 0.2," on rank 1`,
/// and a new line, of longer words their beginning; empty where the calls have little in common.
std::string describe_cause(const Signature& one, const std::string& ranks, const Signature& other,
                           const std::string& other_ranks);
/// The words in which two calls differ, if they are few, and what to do: the end of a message that
/// shows both whole.
std::string describe_difference(const Signature& one, const Signature& other);

/// True if all ranks, at least one, mean the same collective.
bool agree(std::span<const Signature> signatures);

/// Checks that the signatures of all ranks agree.
/// @throws Mismatch that shows what each rank called and names those that differ.
void require_agreement(std::span<const Signature> by_rank, const std::string& group);

}  // namespace lockstep::comm
