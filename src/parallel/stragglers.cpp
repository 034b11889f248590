#include "lockstep/parallel/stragglers.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iomanip>
#include <sstream>
#include <string>
#include <utility>

#include "lockstep/comm/host_values.hpp"
#include "lockstep/core/error.hpp"
#include "parallel/trace_seconds.hpp"

namespace lockstep::parallel {
namespace {

constexpr double noticed_share = 0.05;
constexpr std::size_t most_unread = 256;  // works; of a step with very many forwards

thread_local std::shared_ptr<StepTimes> times_of_thread;

/// Of one rank's step, as the others get it.
struct Times {
  double collectives, whole;
};

std::vector<Times> times_in(const std::string& bytes) {
  std::vector<Times> times(bytes.size() / sizeof(Times));
  if (!times.empty()) std::memcpy(times.data(), bytes.data(), times.size() * sizeof(Times));
  return times;
}

/// @param by_rank what its collectives took each rank in one step
void add_step(StragglerReport& report, const std::vector<double>& by_rank) {
  const auto least = std::ranges::min_element(by_rank);
  StragglerReport::Rank& last = report.ranks[static_cast<std::size_t>(least - by_rank.begin())];
  ++last.last;
  for (std::size_t r = 0; r < by_rank.size(); ++r) {
    const double waited = by_rank[r] - *least;
    report.ranks[r].waited += waited;
    last.held_up += waited / static_cast<double>(by_rank.size() - 1);
  }
}

}  // namespace

int StragglerReport::straggler() const {
  const auto most = std::ranges::max_element(ranks, {}, &Rank::held_up);
  return static_cast<int>(most - ranks.begin()) %
         static_cast<int>(std::max<std::size_t>(ranks.size(), 1));
}

double StragglerReport::share(int rank) const {
  if (seconds <= 0) return 0;
  return std::min(1.0, ranks.at(static_cast<std::size_t>(rank)).held_up / seconds);
}

std::ostream& operator<<(std::ostream& out, const StragglerReport& report) {
  if (report.steps == 0) return out << "no step was timed\n";
  lockstep::detail::TextStream text;
  text << std::setprecision(3);
  bool any = false;
  for (std::size_t r = 0; r < report.ranks.size(); ++r) {
    const auto& [waited, held_up, last] = report.ranks[r];
    const double share = report.share(static_cast<int>(r));
    if (share < noticed_share) continue;
    any = true;
    text << "rank " << r << " held the others up for " << std::lround(100 * share)
         << " % of the last " << report.steps << " steps (" << held_up << " s of " << report.seconds
         << " s), and came last in " << last << " of them; it waited " << waited << " s itself\n";
  }
  if (!any)
    text << "no rank held the others up for " << 100 * noticed_share << " % of the last "
         << report.steps << " steps, which took " << report.seconds << " s\n";
  return out << text.str();
}

void StepTimes::read(Step& step) {
  std::erase_if(step.works, [&](const comm::Work& work) {
    if (!work.is_completed()) return false;
    if (const auto duration = work.duration()) step.collectives += seconds(*duration);
    return true;
  });
}

void StepTimes::begin() {
  for (auto step = steps_.rbegin(); step != steps_.rend() && !step->works.empty(); ++step)
    read(*step);  // on a GPU, which runs behind the host, not the last ones yet
  steps_.push_back({.begun = TraceClock::now()});
  if (steps_.size() > most_steps + 1) steps_.pop_front();
}

StepTimes::Scope::Scope(std::shared_ptr<StepTimes> times) noexcept
    : previous_(std::exchange(times_of_thread, std::move(times))) {}

StepTimes::Scope::~Scope() { times_of_thread = std::move(previous_); }

const std::shared_ptr<StepTimes>& StepTimes::current() noexcept { return times_of_thread; }

void StepTimes::add(comm::Work work) {
  if (steps_.empty()) return;
  std::vector<comm::Work>& works = steps_.back().works;
  works.push_back(std::move(work));
  if (works.size() % most_unread == 0) read(steps_.back());
}

StragglerReport StepTimes::compare(comm::Communicator& group) {
  std::string own;
  for (std::size_t s = 0; s + 1 < steps_.size(); ++s) {
    for (const comm::Work& work : steps_[s].works) work.synchronize();
    read(steps_[s]);
    const Times times{steps_[s].collectives, seconds(steps_[s + 1].begun - steps_[s].begun)};
    own.append(reinterpret_cast<const char*>(&times), sizeof times);
  }
  std::vector<std::vector<Times>> by_rank;
  for (const std::string& bytes : comm::all_gather_bytes(group, own, "times of steps"))
    by_rank.push_back(times_in(bytes));
  StragglerReport report{.ranks = std::vector<StragglerReport::Rank>(by_rank.size())};
  if (by_rank.size() == 1) return report;
  report.steps = std::ranges::min(by_rank, {}, &std::vector<Times>::size).size();
  for (std::size_t back = 1; back <= report.steps; ++back) {
    std::vector<double> collectives;
    double longest = 0;
    for (const auto& times : by_rank) {
      const Times& step = times[times.size() - back];
      collectives.push_back(step.collectives);
      longest = std::max(longest, step.whole);
    }
    report.seconds += longest;
    add_step(report, collectives);
  }
  return report;
}

}  // namespace lockstep::parallel
