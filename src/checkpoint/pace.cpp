#include "checkpoint/pace.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace lockstep::checkpoint {
namespace {

constexpr std::int64_t first_steps = 10;  // take longer than others, and tell little
// Of the time while files are written at most so much is lost: bar of docs/long-runs.md.
constexpr double lost_while_writing = 0.05;

}  // namespace

void Pace::begin(std::int64_t step) noexcept { next_ = step + first_steps; }

double Pace::seconds(const Measured& measured) const noexcept {
  if (interval_.seconds > 0) return interval_.seconds;
  const double cost = measured.stall + lost_while_writing * measured.writing;
  return std::max(cost / interval_.max_overhead, measured.stall + measured.writing);
}

bool Pace::decide(std::int64_t step, const Measured& measured) noexcept {
  const bool is_first = interval_.max_overhead > 0 && measured.stall == 0;  // costs are not known
  const double left = is_first ? 0 : seconds(measured) - measured.since_save;
  const double a_step = std::max(measured.a_step, 1e-9);
  const bool saves = left < a_step / 2;
  // Steps may become slower or faster: half the way, then the question is asked again.
  const double steps =
      saves ? (is_first ? first_steps : seconds(measured) / a_step / 2) : left / a_step / 2;
  next_ = step + std::max<std::int64_t>(1, static_cast<std::int64_t>(std::min(steps, 1e9)));
  return saves;
}

Measured largest(comm::Communicator& group, const Measured& own) {
  std::array<double, 4> all{own.since_save, own.a_step, own.stall, own.writing};
  group
      .all_reduce(comm::Buffer(std::span<double>(all)), comm::ReduceOp::max(),
                  {.label = "times between checkpoints"})
      .wait();
  return {.since_save = all[0], .a_step = all[1], .stall = all[2], .writing = all[3]};
}

}  // namespace lockstep::checkpoint
