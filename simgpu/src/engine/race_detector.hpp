#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/access.hpp"
#include "base/actor.hpp"

/// @file
/// Finds accesses to the same memory that nothing orders.

namespace simgpu {

/// Two accesses with nothing between them.
struct Race {
  std::shared_ptr<const Actor> first, second;  ///< in the order of the calls
  bool first_writes = false, second_writes = false;
  const void* data = nullptr;  ///< the memory that both touch
  std::size_t bytes = 0;
};

/// Remembers, for each byte, the last write and the reads since (Flanagan and Freund 2009), with
/// the whole clock of each actor: accesses of kernels become known when they have run, which may
/// be after those of operations that come later. What such a later one covers stays known until all
/// kernels that were queued before it have run: one of them may conflict with the covered access
/// and yet be ordered against the later one.
///
/// Not thread-safe.
class RaceDetector {
 public:
  /// Accesses of an operation that was queued as this call will become known later.
  void expect(std::uint64_t number) { expected_.insert(number); }
  /// They have become known.
  void has_come(std::uint64_t number) { expected_.erase(number); }

  /// Adds an access. @return the conflicts with earlier ones: at most one for each of them.
  std::vector<Race> add(const std::shared_ptr<const Actor>& actor, const Access& access);

  /// Drops what is known about a range.
  void forget(const void* data, std::size_t bytes);

  /// Who wrote last before an address and not before `begin`, or if nobody did, behind it and
  /// before `end`; null if none is known. Changes of hands do not count.
  std::shared_ptr<const Actor> writer_near(const void* address, const void* begin,
                                           const void* end) const;

  /// Pieces of memory with a history of their own.
  std::size_t size() const { return history_.size(); }

 private:
  using ActorPtr = std::shared_ptr<const Actor>;
  /// An access that a later one covers.
  struct Covered {
    ActorPtr actor;
    bool writes = false;
    std::uint64_t by = 0;  ///< the call of the later one
    bool operator==(const Covered&) const = default;
  };
  struct Piece {
    std::uintptr_t end = 0;
    ActorPtr write;
    std::vector<ActorPtr> reads;
    std::vector<Covered> covered;
  };
  using History = std::map<std::uintptr_t, Piece>;

  History::iterator split_at(std::uintptr_t address);
  void check(const History::value_type& piece, const ActorPtr& actor, bool writes,
             std::vector<Race>& races) const;
  void merge(std::uintptr_t begin, std::uintptr_t end);
  void note(Piece& piece, const ActorPtr& actor, bool writes) const;
  void cover(Piece& piece, const ActorPtr& actor, bool writes, std::uint64_t by) const;

  History history_;  // by begin; the pieces do not overlap
  std::set<std::uint64_t> expected_;
};

/// The text of a report, without the description of the memory.
std::string explain(const Race& race);

}  // namespace simgpu
