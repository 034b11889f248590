#include "lockstep/optim/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

#include "lockstep/core/error.hpp"

namespace lockstep::optim {
namespace {

void check_length(std::string_view schedule, std::int64_t length) {
  LOCKSTEP_CHECK(length >= 1, InvalidArgument, schedule, ": a length of ", length,
                 " steps; it must be at least 1");
}

double as_double(std::int64_t value) { return static_cast<double>(value); }

/// From `high` at 0 to `low` at 1 along half a cosine.
double half_cosine(double high, double low, double progress) {
  return low + (high - low) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

}  // namespace

double ConstantLR::operator()(double base, std::int64_t step) const {
  check_length("ConstantLR", iterations);
  return step < iterations ? base * factor : base;
}

double StepLR::operator()(double base, std::int64_t step) const {
  check_length("StepLR", step_size);
  return base * std::pow(gamma, as_double(step / step_size));
}

double MultiStepLR::operator()(double base, std::int64_t step) const {
  const auto passed = std::count_if(milestones.begin(), milestones.end(),
                                    [step](std::int64_t milestone) { return milestone <= step; });
  return base * std::pow(gamma, as_double(passed));
}

double ExponentialLR::operator()(double base, std::int64_t step) const {
  return base * std::pow(gamma, as_double(step));
}

double LinearLR::operator()(double base, std::int64_t step) const {
  check_length("LinearLR", iterations);
  const double progress = as_double(std::min(step, iterations)) / as_double(iterations);
  return base * (start_factor + (end_factor - start_factor) * progress);
}

double CosineAnnealingLR::operator()(double base, std::int64_t step) const {
  check_length("CosineAnnealingLR", iterations);
  return half_cosine(base, min_lr, as_double(step) / as_double(iterations));
}

double CosineAnnealingWarmRestarts::operator()(double base, std::int64_t step) const {
  check_length("CosineAnnealingWarmRestarts", std::min(iterations, multiplier));
  std::int64_t length = iterations;
  if (multiplier == 1) {
    step %= length;
  } else {
    for (; step >= length; length *= multiplier) step -= length;
  }
  return half_cosine(base, min_lr, as_double(step) / as_double(length));
}

double PolynomialLR::operator()(double base, std::int64_t step) const {
  check_length("PolynomialLR", iterations);
  const double left = 1.0 - as_double(std::min(step, iterations)) / as_double(iterations);
  return base * std::pow(left, power);
}

double OneCycleLR::operator()(double base, std::int64_t step) const {
  check_length("OneCycleLR", iterations);
  LOCKSTEP_CHECK(pct_start >= 0 && pct_start <= 1, InvalidArgument, "OneCycleLR: a pct_start of ",
                 pct_start, "; it must be 0 to 1");
  LOCKSTEP_CHECK(div_factor > 0 && final_div_factor > 0, InvalidArgument, "OneCycleLR: factors of ",
                 div_factor, " and ", final_div_factor, "; they must be above 0");
  const double first = base / div_factor;
  const double end = as_double(iterations - 1), at = std::min(as_double(step), end);
  // As PyTorch has it: the peak lies before the first step if less than one step goes up.
  const double peak = pct_start * as_double(iterations) - 1;
  if (at < peak) return half_cosine(first, base, at / peak);
  return half_cosine(base, first / final_div_factor, end > peak ? (at - peak) / (end - peak) : 0.0);
}

double SWALR::operator()(double base, std::int64_t step) const {
  check_length("SWALR", iterations);
  LOCKSTEP_CHECK(swa_lr >= 0, InvalidArgument, "SWALR: a rate of ", swa_lr,
                 "; it must be a number from 0 on");
  const double progress = as_double(std::min(step, iterations)) / as_double(iterations);
  if (linear) return base + (swa_lr - base) * progress;
  return half_cosine(base, swa_lr, progress);
}

double SequentialLR::operator()(double base, std::int64_t step) const {
  LOCKSTEP_CHECK(schedules.size() == milestones.size() + 1, InvalidArgument,
                 "SequentialLR: ", schedules.size(), " schedules and ", milestones.size(),
                 " milestones; there is a milestone between each two schedules");
  LOCKSTEP_CHECK(std::is_sorted(milestones.begin(), milestones.end()), InvalidArgument,
                 "SequentialLR: milestones that do not rise");
  const auto next = std::upper_bound(milestones.begin(), milestones.end(), step);
  const std::int64_t start = next == milestones.begin() ? 0 : *(next - 1);
  return schedules[static_cast<std::size_t>(next - milestones.begin())](base, step - start);
}

}  // namespace lockstep::optim
