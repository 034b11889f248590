#include "comm/inquiry_hub.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "comm/group_news.hpp"

namespace lockstep::comm {
namespace {

using news::next_word, news::number;

// Whatever ranks send: of so many it is known at a time whether they have answered, and so many
// groups are known to have failed.
constexpr std::size_t max_asked = std::size_t{1} << 17, max_failed = 1024;
// A rank asks for one collective of each of its groups at a time.
constexpr std::ptrdiff_t max_asked_by_one = 64;
constexpr std::size_t max_doing = 1000;
constexpr std::chrono::milliseconds shortest_pause(50), longest_pause(100);

// Puts lines together into as few texts as hold them.
class Texts {
 public:
  void add(const std::string& line) {
    if (texts_.empty() || texts_.back().size() + 1 + line.size() > news::max_bytes)
      texts_.push_back(line);
    else
      texts_.back() += news::separator + line;
  }
  std::vector<std::string> take() { return std::move(texts_); }

 private:
  std::vector<std::string> texts_;
};

}  // namespace

bool InquiryHub::take(int rank, std::string_view one, Clock::time_point now) {
  std::string_view words = one;
  const std::string_view kind = next_word(words);
  const std::lock_guard lock(mutex_);
  if (kind == news::failed) return is_repeated_failure(words);
  if (kind == news::left) take_departure(rank, words);
  if (kind == news::asks) take_question(rank, words, now);
  if (kind == news::answers) take_answer(rank, words);
  return kind == news::asks || kind == news::answers;
}

// Each of many members may see the group fail at the same time.
bool InquiryHub::is_repeated_failure(std::string_view words) {
  const std::string_view key = next_word(words);
  if (std::ranges::find(failed_, key) != failed_.end()) return true;
  failed_.emplace_back(key);
  if (failed_.size() > max_failed) failed_.pop_front();
  return false;
}

bool InquiryHub::has_room_for(std::size_t ranks) const {
  for (const auto& [subject, round] : rounds_) ranks += round.asked.size() + 1;
  return ranks < max_asked;
}

void InquiryHub::take_question(int rank, std::string_view words, Clock::time_point now) {
  const std::string_view key = next_word(words);
  const Subject subject(key, number<std::uint64_t>(next_word(words)));
  const auto is_another_of_it = [&](const auto& entry) {
    return entry.first != subject && entry.second.askers.contains(rank);
  };
  if (std::ranges::count_if(rounds_, is_another_of_it) >= max_asked_by_one) return;
  const std::vector<int> whom = news::ranks_in(words, size_);
  if (!has_room_for(whom.size())) return;
  Round& round = rounds_[subject];
  round.last_asked = now;
  Asker asker{.asked_at = now, .next = now, .whom = std::vector<bool>(std::size_t(size_))};
  for (const int other : whom) {
    if (other == rank || asker.whom[std::size_t(other)]) continue;
    asker.whom[std::size_t(other)] = true;
    ask(round, subject, other, now);
    asker.missing += round.asked[other].is_done ? 0 : 1;
  }
  asker.has_more = !round.answers.empty();
  round.askers[rank] = std::move(asker);
}

// Unless it was asked lately.
void InquiryHub::ask(Round& round, const Subject& subject, int rank, Clock::time_point now) {
  const auto found = round.asked.find(rank);
  if (found != round.asked.end() && found->second.at + Inquiry::answer_timeout >= now) return;
  if (found != round.asked.end() && found->second.is_done)
    for (auto& [_, asker] : round.askers) asker.missing += asker.whom[std::size_t(rank)];
  round.asked[rank] = {.at = now};
  std::erase_if(round.answers, [&](const auto& entry) { return entry.second.rank == rank; });
  questions_.push_back(
      {rank, std::string(news::asks) + ' ' + subject.first + ' ' + std::to_string(subject.second)});
}

void InquiryHub::take_answer(int rank, std::string_view words) {
  const std::string_view key = next_word(words);
  const int rank_in_group = number<int>(next_word(words));
  if (rank_in_group < 0 || rank_in_group >= size_) return;
  const Subject subject(key, number<std::uint64_t>(next_word(words)));
  const auto found = rounds_.find(subject);
  if (found == rounds_.end()) return;
  Round& round = found->second;
  const auto asked = round.asked.find(rank);
  if (asked == round.asked.end() || asked->second.is_done) return;
  const bool is_behind = number<int>(next_word(words)) != 0;
  round.answers[rank_in_group] = {rank, is_behind, std::string(words.substr(0, max_doing))};
  note_done(round, rank);
}

void InquiryHub::take_departure(int rank, std::string_view words) {
  const std::string_view key = next_word(words);
  for (auto& [subject, round] : rounds_)
    if (subject.first == key) note_done(round, rank);
}

void InquiryHub::note_done(Round& round, int rank) {
  const auto asked = round.asked.find(rank);
  if (asked == round.asked.end() || std::exchange(asked->second.is_done, true)) return;
  for (auto& [_, asker] : round.askers) {
    if (!asker.whom[std::size_t(rank)]) continue;
    asker.has_more = true;
    if (asker.missing > 0) --asker.missing;
  }
}

std::vector<InquiryHub::Delivery> InquiryHub::take_due(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  std::vector<Delivery> due = std::exchange(questions_, {});
  std::erase_if(rounds_, [&](const auto& entry) {
    return now > entry.second.last_asked + Inquiry::answer_timeout;
  });
  for (auto& [subject, round] : rounds_)
    for (auto& [rank, asker] : round.askers) {
      const auto waited = now - asker.asked_at;
      if (!asker.has_more || waited > Inquiry::answer_timeout) continue;
      if (asker.missing > 0 && now < asker.next) continue;
      asker.has_more = false;
      asker.next = now + std::clamp<Clock::duration>(waited / 2, shortest_pause, longest_pause);
      give(rank, subject, round, due);
    }
  return due;
}

// In what a rank says of the others it names a few: the first ones, or the first that are behind.
// Of the rest it is enough whether they are behind.
void InquiryHub::give(int asker, const Subject& subject, const Round& round,
                      std::vector<Delivery>& due) {
  constexpr std::size_t most = 2 * Inquiry::most_named;  // as some may leave meanwhile
  const std::vector<bool>& whom = round.askers.at(asker).whom;
  std::map<std::pair<bool, std::string_view>, std::vector<int>> ranks_by_answer;
  std::size_t answered = 0, behind = 0;
  for (const auto& [rank, answer] : round.answers) {
    if (!whom[std::size_t(answer.rank)]) continue;
    const bool is_named = answered++ < most || (answer.is_behind && behind < most);
    behind += answer.is_behind;
    ranks_by_answer[{answer.is_behind, is_named ? answer.doing : std::string_view()}].push_back(
        rank);
  }
  Texts texts;
  for (const auto& [answer, ranks] : ranks_by_answer)
    for (std::span<const int> rest = ranks; !rest.empty();) {
      std::string line = std::string(news::answers) + ' ' + subject.first + ' ';
      line += news::take_rank_list(rest, news::max_bytes / 4) + ' ';
      line += std::to_string(subject.second) + ' ' + (answer.first ? "1 " : "0 ");
      texts.add(line += answer.second);
    }
  for (std::string& text : texts.take()) due.push_back({asker, std::move(text)});
}

}  // namespace lockstep::comm
