#include "lockstep/parallel/trace_recorder.hpp"

#include "runtime/step_recording.hpp"

namespace lockstep::parallel {

TraceMoment::TraceMoment(Device device) : on_host_(TraceClock::now()) {
  if (!device.is_cuda()) return;
  on_gpu_.emplace(device, true);
  on_gpu_->record(current_stream(device));
}

TraceClock::time_point TraceMoment::time() const {
  if (!on_gpu_) return on_host_;
  on_gpu_->synchronize();
  return on_gpu_->reached_at();
}

void TraceRecorder::begin(bool with_ready_times) {
  if (record_.use_count() == 1)
    *record_ = {};
  else
    record_ = std::make_shared<Record>();
  if (is_captured()) return;
  record_->with_ready_times = with_ready_times;
  record_->first_gradient.emplace(device_);
}

bool TraceRecorder::is_captured() const { return StepRecording::on(device_) != nullptr; }

void TraceRecorder::ready(std::size_t parameter) { note(&Record::ready, parameter); }

void TraceRecorder::complete(std::size_t bucket) { note(&Record::complete, bucket); }

void TraceRecorder::note(Moments Record::*moments, std::size_t index) {
  if (!record_->with_ready_times || is_captured()) return;
  Moments& all = (*record_).*moments;
  if (all.size() <= index) all.resize(index + 1);
  all[index].emplace(device_);
}

void TraceRecorder::launch(const std::string& label, std::size_t bucket, std::size_t bytes) {
  if (!is_captured()) record_->launches.push_back({label, bucket, bytes, TraceMoment(device_), {}});
}

void TraceRecorder::launched(const comm::Work& work) {
  if (!is_captured()) record_->launches.back().work = work;
}

void TraceRecorder::end_backward() {
  if (!is_captured()) record_->backward_end.emplace(device_);
}

void TraceRecorder::synchronize() {
  if (!is_captured()) record_->synchronized.emplace(device_);
}

ReducerTrace TraceRecorder::trace() const {
  const auto time_of = [](const std::optional<TraceMoment>& moment) {
    return moment ? moment->time() : TraceClock::time_point{};
  };
  ReducerTrace trace;
  trace.first_gradient = time_of(record_->first_gradient);
  trace.backward_end = time_of(record_->backward_end);
  trace.synchronized = time_of(record_->synchronized);  // now the works are complete, too
  for (const Launch& launch : record_->launches) {
    const auto launched = launch.moment.time();
    const auto times = launch.work.times();
    trace.buckets.push_back({launch.label, launch.bucket, launch.bytes, launched,
                             times ? times->started : launched,
                             times ? times->finished : trace.synchronized});
  }
  return trace;
}

ReadyTimes TraceRecorder::ready_times() const {
  const auto times_of = [](const Moments& moments) {
    std::vector<std::optional<TraceClock::time_point>> times;
    for (const auto& moment : moments)
      times.push_back(moment ? std::optional(moment->time()) : std::nullopt);
    return times;
  };
  return {.gradients = times_of(record_->ready), .buckets = times_of(record_->complete)};
}

}  // namespace lockstep::parallel
