#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "comm/group_registry.hpp"

namespace lockstep::comm {

/// What a rank finds out about the others once the time of an operation is over: it asks those that
/// are in it, and names those that are not, or do not say. Waits for nobody, who may be stopped,
/// gone or stuck. Whoever owns it guards it.
class Inquiry {
 public:
  using Clock = std::chrono::steady_clock;
  /// Whoever has not answered after so long does not. What another rank was answered so long before
  /// counts, too.
  static constexpr std::chrono::milliseconds answer_timeout = std::chrono::seconds(2);
  /// So many ranks are named.
  static constexpr std::size_t most_named = 8;

  /// What to ask, and whom.
  struct Question {
    std::uint64_t collective = 0;
    std::vector<int> whom;
  };

  /// @param hub the rank that hands on what ranks ask each other, if it is in the group
  Inquiry(int rank, int size, std::optional<int> hub = std::nullopt)
      : rank_(rank), size_(size), hub_(hub) {}

  /// Asks who is in this collective, unless it does so already. @param deadline of the operation
  /// that is overdue, by which it is told from others that bear the same number, as messages do.
  /// @param partners the ranks that it needs; empty: all
  void begin(std::uint64_t collective, Clock::time_point deadline, std::span<const int> partners,
             Clock::time_point now);
  /// Once for each `begin`.
  std::optional<Question> take_question();
  /// A member has left, in good order: it is not expected to answer, nor waited for.
  void note_left(int rank) { gone_.insert(rank); }
  /// There is no way to ask.
  void give_up() { nobody_hears_ = true; }
  void add(const Standing& standing);
  /// Whether nothing more is to be expected.
  bool is_over(Clock::time_point now) const;
  /// Of which a rank says that it has begun it: of a captured step nobody knows how far it is.
  enum class Begun { operation, captured_step };
  /// "waiting for rank 1 (idle after all_reduce #19 of 5 f32), rank 3 (does not answer)": first
  /// those of which something is known. Partners are named in any case: messages are in no
  /// collective. Where nobody has answered, the hub alone: of the others nothing is known.
  std::string result(Begun begun = Begun::operation) const;
  /// The ranks of that; empty if all have begun it, or nobody can be asked.
  std::string missing() const;

 private:
  bool is_needed(int rank) const;
  const Standing* answer_of(int rank) const;

  int rank_, size_;
  std::optional<int> hub_;
  std::optional<std::uint64_t> collective_;
  Clock::time_point deadline_, began_;
  std::set<int> partners_;
  bool has_asked_ = false, nobody_hears_ = false;
  std::map<int, Standing> answers_;  // the last of each rank
  std::set<int> gone_;
};

}  // namespace lockstep::comm
