#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/inquiry.hpp"

namespace lockstep::comm {

/// Rank 0's part in inquiries. All members of a group may wait for the same collective in vain, and
/// ask: each is asked once for all of them, and what comes is given to each that asks together, so
/// that the messages about one collective are a few for each rank. Waits for nobody, and asks for
/// no rank that does not ask: whoever does may end meanwhile. Ranks are those of the job. From any
/// thread.
class InquiryHub {
 public:
  using Clock = Inquiry::Clock;
  /// News for a rank.
  struct Delivery {
    int rank = 0;
    std::string text;
  };

  explicit InquiryHub(int size) : size_(size) {}

  /// Takes news of a rank. True if they go to nobody else than by `take_due`: questions, answers,
  /// and failures of a group whose members have heard of one.
  bool take(int rank, std::string_view one, Clock::time_point now);
  /// What is to be sent by now: questions at once; to whoever asks all answers that there are, once
  /// there is one, again as more come, less and less often, and at once where none is missing.
  std::vector<Delivery> take_due(Clock::time_point now);

 private:
  struct Asked {
    Clock::time_point at;
    bool is_done = false;  // it has answered, or left the group
  };
  struct Answer {
    int rank = 0;
    bool is_behind = false;
    std::string doing;
  };
  struct Asker {
    Clock::time_point asked_at, next;
    std::vector<bool> whom;
    std::size_t missing = 0;  // of those
    bool has_more = false;    // it has not been given all that there is
  };
  // About one collective of a group.
  struct Round {
    Clock::time_point last_asked;
    std::map<int, Asked> asked;
    std::map<int, Answer> answers;  // by ranks within the group
    std::map<int, Asker> askers;
  };
  using Subject = std::pair<std::string, std::uint64_t>;  // the group's key, the collective

  void take_question(int rank, std::string_view words, Clock::time_point now);
  void ask(Round& round, const Subject& subject, int rank, Clock::time_point now);
  void take_answer(int rank, std::string_view words);
  void take_departure(int rank, std::string_view words);
  bool is_repeated_failure(std::string_view words);
  bool has_room_for(std::size_t ranks) const;
  static void note_done(Round& round, int rank);
  static void give(int asker, const Subject& subject, const Round& round,
                   std::vector<Delivery>& due);

  const int size_;
  std::mutex mutex_;
  std::map<Subject, Round> rounds_;
  std::vector<Delivery> questions_;
  std::deque<std::string> failed_;  // keys of groups, the last ones
};

}  // namespace lockstep::comm
