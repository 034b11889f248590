#include "parallel/bucket_planner.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/thread_modes.hpp"
#include "lockstep/comm/errors.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/parallel/writable_buffer.hpp"
#include "lockstep/tensor/factories.hpp"
#include "parallel/trace_seconds.hpp"

namespace lockstep::parallel {
namespace {

constexpr double unknown = std::numeric_limits<double>::max();

std::string_view bytes_of(std::span<const std::int64_t> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

/// The mean of what is known.
double mean(std::span<const double> values) {
  double sum = 0, count = 0;
  for (const double value : values) {
    if (value == unknown) continue;
    sum += value;
    ++count;
  }
  return count > 0 ? sum / count : unknown;
}

}  // namespace

/// One backward, of this rank or of all; what was not measured is `unknown`.
struct BucketPlanner::Times {
  std::vector<double> ready;     // of parameters, and the end of the computation
  std::vector<double> messages;  // of buckets
  std::vector<double> probes;    // before them
  std::vector<double> counts;    // collectives of a bucket
};

void BucketPlanner::probe() {
  const NoGradGuard no_recording;
  const autograd::AutocastModeGuard no_casts;
  const Tensor number = zeros({}, {DType::f64, group_.device()});
  const comm::Work work =
      group_.all_reduce(writable_buffer(number), comm::ReduceOp::sum(),
                        {.label = "probe of the latency, for buckets of " + name_});
  probes_.push_back({work, TensorWork(work, number)});
}

void BucketPlanner::add(const TraceRecorder& backward, bool has_data) {
  measured_.push_back({backward, std::exchange(probes_, {}), has_data});
}

/// A bucket costs what its collectives take, and what its exchange computes before them.
std::vector<BucketPlanner::Times> BucketPlanner::read(std::size_t parameters,
                                                      std::size_t buckets) const {
  std::vector<Times> all;
  for (std::size_t i = 0; i < measured_.size(); ++i) {
    Times& times = all.emplace_back(Times{.ready = std::vector(parameters + 1, unknown),
                                          .messages = std::vector(buckets, unknown),
                                          .probes = std::vector(buckets, unknown),
                                          .counts = std::vector(buckets, 0.0)});
    const ReducerTrace trace = measured_[i].times.trace();
    const ReadyTimes ready = measured_[i].times.ready_times();
    const auto since_begin = [&](TraceClock::time_point time) {
      return std::max(0.0, seconds(time - trace.first_gradient));
    };
    if (measured_[i].has_data) {
      for (std::size_t k = 0; k < std::min(parameters, ready.gradients.size()); ++k)
        if (ready.gradients[k]) times.ready[k] = since_begin(*ready.gradients[k]);
      times.ready.back() = since_begin(trace.backward_end);
    }
    if (i < without_messages_) continue;
    for (const BucketTrace& each : trace.buckets) {
      double& message = times.messages[each.bucket];
      if (times.counts[each.bucket]++ == 0)
        message = seconds(each.launched - ready.buckets.at(each.bucket).value_or(each.launched));
      message += seconds(each.finished - each.started);
    }
    for (std::size_t b = 0; b < std::min(buckets, measured_[i].probes.size()); ++b) {
      measured_[i].probes[b].work.synchronize();
      if (const auto when = measured_[i].probes[b].work.times())
        times.probes[b] = seconds(when->finished - when->started);
    }
  }
  return all;
}

/// A gradient is ready where it is on all ranks. A message begins once the last rank has come, so
/// that it takes what it takes there: the others' times have their waiting in them.
void BucketPlanner::agree(std::vector<Times>& all) const {
  const auto for_each = [&](auto visit) {
    for (Times& times : all) {
      for (double& value : times.ready) visit(value, 1.0);
      for (double& value : times.counts) visit(value, 1.0);
      for (double& value : times.messages) visit(value, -1.0);
      for (double& value : times.probes) visit(value, -1.0);
    }
  };
  std::vector<double> greatest;
  for_each([&](double value, double sign) {
    greatest.push_back(value == unknown ? -unknown : sign * value);
  });
  const Tensor shared = tensor<double>(greatest, group_.device());
  group_
      .all_reduce(writable_buffer(shared), comm::ReduceOp::max(),
                  {.label = "measurements for buckets of " + name_})
      .wait();
  greatest = shared.to_vector<double>();
  auto next = greatest.begin();
  for_each([&](double& value, double sign) {
    value = *next == -unknown ? unknown : sign * *next;
    ++next;
  });
}

std::optional<BackwardTimes> BucketPlanner::summarise(std::span<const Times> all,
                                                      std::span<const Bucket> buckets) const {
  std::vector<MessageTime> messages;
  for (const Times& times : all)
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      if (times.messages[b] != unknown)
        messages.push_back({static_cast<double>(buckets[b].bytes()), times.messages[b]});
      if (times.probes[b] != unknown && times.counts[b] > 0)
        messages.push_back({0, times.probes[b] * times.counts[b]});
    }
  BackwardTimes summary;
  summary.cost = fit_message_cost(messages);
  for (std::size_t k = 0; k < all[0].ready.size(); ++k) {
    std::vector<double> measured;
    for (const Times& times : all) measured.push_back(times.ready[k]);
    summary.ready.push_back(mean(measured));
  }
  if (messages.empty() || std::ranges::find(summary.ready, unknown) != summary.ready.end())
    return std::nullopt;
  summary.end = summary.ready.back();
  summary.ready.pop_back();
  return summary;
}

/// All ranks could solve it, but where their processors differ in one bit, it would be another
/// plan.
void BucketPlanner::share(Plan& plan, std::size_t parameters) const {
  std::vector<std::int64_t> told;
  if (group_.rank() == 0) {
    told = {std::bit_cast<std::int64_t>(plan.times.cost.latency),
            std::bit_cast<std::int64_t>(plan.times.cost.seconds_per_byte)};
    told.insert(told.end(), plan.order.begin(), plan.order.end());
    told.insert(told.end(), plan.ends.begin(), plan.ends.end());
  }
  const std::string agreed =
      comm::broadcast_bytes(group_, bytes_of(told), 0, "buckets of " + name_);
  told.resize(agreed.size() / sizeof told[0]);
  LOCKSTEP_CHECK(bytes_of(told).size() == agreed.size() && told.size() >= parameters + 2,
                 comm::Mismatch, "the buckets of rank 0 arrived in ", agreed.size(), " bytes");
  std::ranges::copy(agreed, reinterpret_cast<char*>(told.data()));
  plan.times.cost = {.latency = std::bit_cast<double>(told[0]),
                     .seconds_per_byte = std::bit_cast<double>(told[1])};
  const auto ends = told.begin() + 2 + static_cast<std::ptrdiff_t>(parameters);
  plan.order.assign(told.begin() + 2, ends);
  plan.ends.assign(ends, told.end());
}

std::optional<BucketPlanner::Plan> BucketPlanner::solve(std::span<const ParameterInfo> parameters,
                                                        std::span<const Bucket> buckets,
                                                        std::span<const std::size_t> order) {
  const NoGradGuard no_recording;
  const autograd::AutocastModeGuard no_casts;
  std::vector<Times> all = read(parameters.size(), buckets.size());
  agree(all);
  auto times = summarise(all, buckets);
  if (!times) return std::nullopt;
  Plan plan{.times = *std::move(times)};
  if (group_.rank() == 0) {
    plan.order = order_by_times(order, plan.times);
    const double negligible = std::max(plan.times.cost.latency, plan.times.end / 500);
    plan.ends = cut_for_earliest_end(parameters, plan.order, plan.times, negligible);
    const auto end_of = [&](std::span<const Bucket> any) {
      return predict(any, plan.times).back().end;
    };
    if (end_of(buckets) <= end_of(cut_buckets(parameters, plan.order, plan.ends)))
      plan.ends.clear();
  }
  share(plan, parameters.size());
  return plan;
}

}  // namespace lockstep::parallel
