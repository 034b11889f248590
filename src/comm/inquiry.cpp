#include "comm/inquiry.hpp"

#include <algorithm>
#include <iterator>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {

void Inquiry::begin(std::uint64_t collective, Clock::time_point deadline,
                    std::span<const int> partners, Clock::time_point now) {
  if (collective_ == collective && deadline_ == deadline) return;
  collective_ = collective;
  deadline_ = deadline;
  began_ = now;
  partners_ = std::set<int>(partners.begin(), partners.end());
  has_asked_ = false;
  answers_.clear();
}

bool Inquiry::is_needed(int rank) const {
  return rank != rank_ && (partners_.empty() || partners_.contains(rank));
}

std::optional<Inquiry::Question> Inquiry::take_question() {
  if (!collective_ || has_asked_) return std::nullopt;
  has_asked_ = true;
  Question question{.collective = *collective_, .whom = {}};
  for (int rank = 0; rank < size_; ++rank)
    if (is_needed(rank) && !gone_.contains(rank)) question.whom.push_back(rank);
  if (question.whom.empty()) return std::nullopt;
  return question;
}

void Inquiry::add(const Standing& standing) {
  if (standing.rank < 0 || standing.rank >= size_ || standing.collective != collective_) return;
  answers_[standing.rank] = standing;
}

const Standing* Inquiry::answer_of(int rank) const {
  const auto found = answers_.find(rank);
  return found == answers_.end() ? nullptr : &found->second;
}

bool Inquiry::is_over(Clock::time_point now) const {
  if (nobody_hears_ || now > began_ + answer_timeout) return true;
  for (int rank = 0; rank < size_; ++rank)
    if (is_needed(rank) && !gone_.contains(rank) && !answer_of(rank)) return false;
  return true;
}

std::string Inquiry::missing() const {
  if (nobody_hears_) return {};
  const auto words = [](const std::string& doing) {
    return doing.empty() ? "" : " (" + doing + ')';
  };
  if (answers_.empty() && hub_ && is_needed(*hub_) && !gone_.contains(*hub_))
    return detail::concat("rank ", *hub_,
                          " (does not answer; what ranks ask each other goes through it)");
  std::vector<std::string> missing, silent;
  for (int rank = 0; rank < size_; ++rank) {
    const Standing* const answer = answer_of(rank);
    const bool has_left = gone_.contains(rank), is_partner = partners_.contains(rank);
    if (!is_needed(rank) || (has_left && !is_partner)) continue;
    if (answer && !answer->is_behind && !is_partner) continue;
    const std::string name = "rank " + std::to_string(rank);
    if (answer)
      missing.push_back(name + words(answer->doing));
    else
      silent.push_back(name + words(has_left ? "has left" : "does not answer"));
  }
  std::ranges::move(silent, std::back_inserter(missing));
  std::string text;
  for (std::size_t i = 0; i < std::min(missing.size(), most_named); ++i)
    text += (i > 0 ? ", " : "") + missing[i];
  if (missing.size() > most_named)
    text += " and " + std::to_string(missing.size() - most_named) + " more";
  return text;
}

std::string Inquiry::result(Begun begun) const {
  if (nobody_hears_) return "waiting for the other ranks";
  const std::string ranks = missing();
  if (!ranks.empty()) return "waiting for " + ranks;
  return begun == Begun::operation
             ? "though all ranks have begun it: what connects them may be broken"
             : "though all ranks have begun the captured step that it is in: the device of one "
               "may be held up in that step, or what connects them be broken";
}

}  // namespace lockstep::comm
