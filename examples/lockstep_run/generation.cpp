#include "lockstep_run/generation.hpp"

#include <algorithm>
#include <csignal>
#include <numeric>
#include <utility>

#include <lockstep/core/error.hpp>
#include <sys/wait.h>

namespace run {
namespace {

using lockstep::detail::concat;

std::string describe(int status) {
  if (!WIFSIGNALED(status)) return concat("ended with code ", WEXITSTATUS(status));
  return "was killed by " + name_of_signal(WTERMSIG(status));
}

}  // namespace

std::string name_of_signal(int number) {
  constexpr std::pair<int, const char*> names[] = {
      {SIGKILL, "SIGKILL"}, {SIGSEGV, "SIGSEGV"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},
      {SIGFPE, "SIGFPE"},   {SIGILL, "SIGILL"},   {SIGTERM, "SIGTERM"}, {SIGUSR1, "SIGUSR1"},
      {SIGINT, "SIGINT"},   {SIGHUP, "SIGHUP"}};
  for (const auto& [known, name] : names)
    if (known == number) return name;
  return concat("signal ", number);
}

Generation::Generation(int number, std::vector<std::string> names, std::vector<int> ranks)
    : number_(number), names_(std::move(names)), counts_(std::move(ranks)) {
  for (std::size_t host = 0; host < counts_.size(); ++host)
    for (int i = 0; i < counts_[host]; ++i) ranks_.push_back({.host = host});
}

int Generation::first_rank_of(std::size_t host) const {
  return std::accumulate(counts_.begin(), counts_.begin() + static_cast<std::ptrdiff_t>(host), 0);
}

std::string Generation::place_of(int rank) const {
  const Rank& one = ranks_.at(static_cast<std::size_t>(rank));
  return concat("rank ", rank, names_.size() > 1 ? " on " + names_[one.host] : "");
}

void Generation::note_progress(int rank, const Progress& progress) {
  ranks_.at(static_cast<std::size_t>(rank)).progress = progress;
}

void Generation::note_end(int rank, int status, const Progress& progress) {
  Rank& one = ranks_.at(static_cast<std::size_t>(rank));
  one.is_running = false;
  one.progress = progress;
  const bool has_exited = WIFEXITED(status);
  const int code = has_exited ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (has_exited && (code == 0 || code == stopped_code)) {
    exit_code_ = std::max(exit_code_, code);
    return;
  }
  if (death_) return;  // of what was killed behind it, or ended because of it
  const std::int64_t step = progress.step;
  // The first that is seen: where ranks end each other, another may have begun.
  std::string what = place_of(rank) + " " + describe(status);
  what += step < 0 ? ", having told of no step" : concat(" behind step ", step);
  constexpr int refusal_code = 2;
  death_ = {.what = what,
            .exit_code = code,
            .is_exit = has_exited,
            .is_refusal = has_exited && code == refusal_code,
            .step = step < 0 ? std::nullopt : std::optional(step)};
}

void Generation::note_lost_host(std::size_t host, const std::string& reason) {
  if (!is_running_on(host)) return;
  std::int64_t furthest = -1;
  for (Rank& rank : ranks_)
    if (rank.host == host) {
      rank.is_running = false;
      furthest = std::max(furthest, rank.progress.step);
    }
  if (death_) return;
  death_ = {.what = concat("host ", names_[host], " was lost: ", reason),
            .is_of_the_host = true,
            .step = furthest < 0 ? std::nullopt : std::optional(furthest)};
}

void Generation::note_stall(const std::string& what) {
  if (!death_) death_ = {.what = what, .step = furthest_step()};
}

bool Generation::is_running_on(std::size_t host) const {
  return std::ranges::any_of(
      ranks_, [&](const Rank& rank) { return rank.host == host && rank.is_running; });
}

bool Generation::is_over() const { return std::ranges::none_of(ranks_, &Rank::is_running); }

bool Generation::has_made_steps() const { return furthest_step() >= 0; }

std::int64_t Generation::furthest_step() const {
  std::int64_t furthest = -1;
  for (const Rank& rank : ranks_) furthest = std::max(furthest, rank.progress.step);
  return furthest;
}

bool Generation::is_in_long_work() const {
  return std::ranges::any_of(ranks_, [](const Rank& rank) { return rank.progress.long_work != 0; });
}

std::int64_t Generation::first_step() const {
  std::int64_t first = -1;
  for (const Rank& rank : ranks_) first = std::max(first, rank.progress.first);
  return first;
}

std::int64_t Generation::saved_step() const {
  std::int64_t saved = -1;
  for (const Rank& rank : ranks_) saved = std::max(saved, rank.progress.saved);
  return saved;
}

}  // namespace run
