#include "comm/inquiry.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

namespace lockstep::comm {

void Inquiry::begin(std::uint64_t collective, Clock::time_point now) {
  if (collective_ == collective) return;
  collective_ = collective;
  began_ = now;
}

std::optional<std::uint64_t> Inquiry::take_question() {
  if (!collective_ || asked_ == collective_) return std::nullopt;
  return asked_ = collective_;
}

void Inquiry::add(const Standing& standing) {
  if (standing.rank >= 0 && standing.rank < size_) answers_[standing.rank] = standing;
}

const Standing* Inquiry::answer_of(int rank) const {
  const auto found = answers_.find(rank);
  return found != answers_.end() && found->second.collective == collective_ ? &found->second
                                                                            : nullptr;
}

bool Inquiry::is_over(Clock::time_point now) const {
  if (nobody_hears_ || now > began_ + answer_timeout) return true;
  for (int rank = 0; rank < size_; ++rank)
    if (rank != rank_ && !answer_of(rank)) return false;
  return true;
}

std::string Inquiry::result(std::span<const int> partners) const {
  constexpr int shown = 8;
  if (nobody_hears_) return "waiting for the other ranks";
  std::ostringstream text;
  int missing = 0;
  for (int rank = 0; rank < size_; ++rank) {
    const Standing* const answer = answer_of(rank);
    const bool is_partner = std::ranges::find(partners, rank) != partners.end();
    const bool is_needed = partners.empty() || is_partner;
    if (rank == rank_ || !is_needed || (answer && !answer->is_behind && !is_partner)) continue;
    if (missing++ >= shown) continue;
    text << (missing == 1 ? "waiting for rank " : ", rank ") << rank << " ("
         << (answer ? answer->doing : "does not answer") << ')';
  }
  if (missing > shown) text << " and " << missing - shown << " more";
  return missing > 0 ? text.str()
                     : "though all ranks have begun it: what connects them may be broken";
}

}  // namespace lockstep::comm
