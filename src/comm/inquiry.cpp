#include "comm/inquiry.hpp"

#include <algorithm>
#include <iterator>
#include <vector>

namespace lockstep::comm {

void Inquiry::begin(std::uint64_t collective, Clock::time_point deadline, Clock::time_point now) {
  if (collective_ == collective && deadline_ == deadline) return;
  collective_ = collective;
  deadline_ = deadline;
  began_ = now;
  has_asked_ = false;
}

std::optional<std::uint64_t> Inquiry::take_question() {
  if (!collective_ || has_asked_) return std::nullopt;
  if (asked_ && asked_->value == collective_ && is_fresh(asked_->came)) return std::nullopt;
  has_asked_ = true;
  return collective_;
}

void Inquiry::add(const Standing& standing, Clock::time_point now) {
  if (standing.rank >= 0 && standing.rank < size_) answers_[standing.rank] = {standing, now};
}

const Standing* Inquiry::answer_of(int rank) const {
  const auto found = answers_.find(rank);
  if (found == answers_.end()) return nullptr;
  const auto& [standing, came] = found->second;
  return standing.collective == collective_ && is_fresh(came) ? &standing : nullptr;
}

bool Inquiry::is_over(Clock::time_point now) const {
  if (nobody_hears_ || now > began_ + answer_timeout) return true;
  for (int rank = 0; rank < size_; ++rank)
    if (rank != rank_ && !gone_.contains(rank) && !answer_of(rank)) return false;
  return true;
}

std::string Inquiry::result(std::span<const int> partners, Begun begun) const {
  constexpr std::size_t shown = 8;
  if (nobody_hears_) return "waiting for the other ranks";
  std::vector<std::string> missing, silent;
  for (int rank = 0; rank < size_; ++rank) {
    const Standing* const answer = answer_of(rank);
    const bool is_partner = std::ranges::find(partners, rank) != partners.end();
    const bool is_needed = is_partner || (partners.empty() && !gone_.contains(rank));
    if (rank == rank_ || !is_needed || (answer && !answer->is_behind && !is_partner)) continue;
    const std::string name = "rank " + std::to_string(rank) + " (";
    if (answer)
      missing.push_back(name + answer->doing + ')');
    else
      silent.push_back(name + (gone_.contains(rank) ? "has left)" : "does not answer)"));
  }
  std::ranges::move(silent, std::back_inserter(missing));
  if (missing.empty())
    return begun == Begun::operation
               ? "though all ranks have begun it: what connects them may be broken"
               : "though all ranks have begun the captured step that it is in: the device of one "
                 "may be held up in that step, or what connects them be broken";
  std::string text = "waiting for ";
  for (std::size_t i = 0; i < std::min(missing.size(), shown); ++i)
    text += (i > 0 ? ", " : "") + missing[i];
  if (missing.size() > shown) text += " and " + std::to_string(missing.size() - shown) + " more";
  return text;
}

}  // namespace lockstep::comm
