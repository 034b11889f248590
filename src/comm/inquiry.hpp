#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "comm/group_registry.hpp"

namespace lockstep::comm {

/// What a rank finds out about the others once the time of an operation is over: it asks all who is
/// in it, and names those that are not, or do not say. Waits for nobody, who may be stopped, gone
/// or stuck. Whoever owns it guards it.
class Inquiry {
 public:
  using Clock = std::chrono::steady_clock;
  /// Whoever has not answered after so long does not. What was asked and answered so long before an
  /// inquiry counts for it.
  static constexpr std::chrono::milliseconds answer_timeout = std::chrono::seconds(2);

  Inquiry(int rank, int size) : rank_(rank), size_(size) {}

  /// Asks who is in this collective, unless it does so already. @param deadline of the operation
  /// that is overdue, by which it is told from others that bear the same number, as messages do.
  void begin(std::uint64_t collective, Clock::time_point deadline, Clock::time_point now);
  /// What to ask the other members; once, by whichever of them is the first.
  std::optional<std::uint64_t> take_question();
  /// Another member has asked for it: its answers are for all.
  void note_asked(std::uint64_t collective, Clock::time_point now) { asked_ = {collective, now}; }
  /// A member has left, in good order: it is not expected to answer, nor waited for.
  void note_left(int rank) { gone_.insert(rank); }
  /// There is no way to ask.
  void give_up() { nobody_hears_ = true; }
  /// An answer; some come before `begin`.
  void add(const Standing& standing, Clock::time_point now);
  /// Whether nothing more is to be expected.
  bool is_over(Clock::time_point now) const;
  /// Of which a rank says that it has begun it: of a captured step nobody knows how far it is.
  enum class Begun { operation, captured_step };
  /// "waiting for rank 1 (idle after all_reduce #19 of 5 f32), rank 3 (does not answer)": first
  /// those of which something is known.
  /// @param partners ranks that are meant in any case: those of messages, which are in no
  /// collective
  std::string result(std::span<const int> partners, Begun begun = Begun::operation) const;

 private:
  template <class T>
  struct Dated {
    T value;
    Clock::time_point came;
  };
  bool is_fresh(Clock::time_point came) const { return came + answer_timeout >= began_; }
  const Standing* answer_of(int rank) const;

  int rank_, size_;
  std::optional<std::uint64_t> collective_;
  Clock::time_point deadline_, began_;
  bool has_asked_ = false, nobody_hears_ = false;
  std::optional<Dated<std::uint64_t>> asked_;  // by another member, the last
  std::map<int, Dated<Standing>> answers_;     // the last of each rank
  std::set<int> gone_;
};

}  // namespace lockstep::comm
