#include <algorithm>

#include "lockstep/parallel/reducer.hpp"
#include "parallel/bucket_planner.hpp"
#include "parallel/trace_seconds.hpp"
#include "runtime/step_recording.hpp"

// Buckets by what was measured of the first steps, and how far that came true.

namespace lockstep::parallel {
namespace {

HiddenCommunication hidden_of(std::span<const BucketSpan> spans, double computation) {
  HiddenCommunication hidden{.computation = computation,
                             .hidden_share = hidden_share(spans, computation)};
  for (const BucketSpan& span : spans) {
    hidden.communication += span.end - span.start;
    hidden.exposed = std::max(hidden.exposed, span.end - computation);
  }
  return hidden;
}

}  // namespace

/// At the end of a synchronised backward, once the buckets follow the order of the first one.
void Reducer::plan_by_measurements() {
  if (!planner_ || is_captured()) return;
  planner_->add(recorder_, has_data_);
  if (!planner_->is_complete()) return;
  std::vector<std::size_t> order;
  for (const Bucket& bucket : plan_)
    order.insert(order.end(), bucket.parameters.begin(), bucket.parameters.end());
  const std::vector<ParameterInfo> infos = parameter_infos();
  auto plan = planner_->solve(infos, plan_, order);
  planner_.reset();
  if (!plan) return;
  measured_ = std::move(plan->times);
  by_sizes_alone_ = predicted_hidden();
  at_best_ = hidden_of(predict_at_best(infos, plan->order, *measured_), measured_->end);
  if (!plan->ends.empty()) build(cut_buckets(infos, plan->order, plan->ends));
}

HiddenCommunication Reducer::predicted_hidden() const {
  return hidden_of(predict(plan_, *measured_), measured_->end);
}

CommunicationReport Reducer::report() const {
  const ReducerTrace trace = recorder_.trace();
  const auto since_begin = [&](TraceClock::time_point time) {
    return seconds(time - trace.first_gradient);
  };
  CommunicationReport report;
  report.buckets.resize(buckets_.size());
  std::vector<BucketSpan> collectives;
  bool is_of_these = true;  // and not of a backward before these buckets
  for (const BucketTrace& each : trace.buckets) {
    collectives.push_back(
        {since_begin(each.launched), since_begin(each.started), since_begin(each.finished)});
    is_of_these =
        is_of_these && each.bucket < buckets_.size() && each.label == buckets_[each.bucket].label;
    if (!is_of_these) continue;
    BucketReport& bucket = report.buckets[each.bucket];
    if (bucket.bytes == 0) bucket.achieved = collectives.back();
    bucket.achieved.end = collectives.back().end;
    bucket.bytes = plan_[each.bucket].bytes();
    bucket.last = parameters_[plan_[each.bucket].parameters.back()].first;
  }
  if (collectives.empty() || !is_of_these) report.buckets.clear();
  if (group_->size() == 1) collectives.clear();  // they moved nothing
  report.achieved = hidden_of(collectives, std::max(0.0, since_begin(trace.backward_end)));
  if (!measured_) return report;
  report.predicted = CommunicationReport::Prediction{measured_->cost, predicted_hidden(),
                                                     by_sizes_alone_, at_best_};
  const std::vector<BucketSpan> spans = predict(plan_, *measured_);
  for (std::size_t b = 0; b < report.buckets.size(); ++b) report.buckets[b].predicted = spans[b];
  return report;
}

}  // namespace lockstep::parallel
