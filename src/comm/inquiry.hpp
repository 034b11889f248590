#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
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
  /// Whoever has not answered after so long does not.
  static constexpr std::chrono::milliseconds answer_timeout = std::chrono::seconds(2);

  Inquiry(int rank, int size) : rank_(rank), size_(size) {}

  /// Asks who is in this collective, unless it does so already.
  void begin(std::uint64_t collective, Clock::time_point now);
  /// What to ask the other members; once for each collective, by whichever of them is the first.
  std::optional<std::uint64_t> take_question();
  /// Another member has asked for it: its answers are for all.
  void note_asked(std::uint64_t collective) { asked_ = collective; }
  /// There is no way to ask.
  void give_up() { nobody_hears_ = true; }
  /// An answer; some come before `begin`.
  void add(const Standing& standing);
  /// Whether nothing more is to be expected.
  bool is_over(Clock::time_point now) const;
  /// "waiting for rank 1 (idle after all_reduce #19 of 5 f32), rank 3 (does not answer)".
  /// @param partners ranks that are meant in any case: those of messages, which are in no
  /// collective
  std::string result(std::span<const int> partners) const;

 private:
  const Standing* answer_of(int rank) const;

  int rank_, size_;
  std::optional<std::uint64_t> collective_, asked_;
  Clock::time_point began_;
  bool nobody_hears_ = false;
  std::map<int, Standing> answers_;  // the last of each rank
};

}  // namespace lockstep::comm
