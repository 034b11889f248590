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

void TraceRecorder::begin() {
  launches_.clear();
  backward_end_.reset();
  synchronized_.reset();
  first_gradient_.reset();
  if (!is_captured()) first_gradient_.emplace(device_);
}

bool TraceRecorder::is_captured() const { return StepRecording::on(device_) != nullptr; }

void TraceRecorder::launched(const comm::Work& work) {
  if (!is_captured()) launches_.back().work = work;
}

void TraceRecorder::end_backward() {
  if (!is_captured()) backward_end_.emplace(device_);
}

void TraceRecorder::synchronize() {
  if (!is_captured()) synchronized_.emplace(device_);
}

void TraceRecorder::launch(const std::string& label, std::size_t bytes) {
  if (is_captured()) return;
  launches_.push_back({label, bytes, TraceMoment(device_), {}});
}

ReducerTrace TraceRecorder::trace() const {
  const auto time_of = [](const std::optional<TraceMoment>& moment) {
    return moment ? moment->time() : TraceClock::time_point{};
  };
  ReducerTrace trace;
  trace.first_gradient = time_of(first_gradient_);
  trace.backward_end = time_of(backward_end_);
  trace.synchronized = time_of(synchronized_);  // from here on the works are complete, too
  for (const Launch& launch : launches_) {
    const auto launched = launch.moment.time();
    const auto times = launch.work.times();
    trace.buckets.push_back({launch.label, launch.bytes, launched,
                             times ? times->started : launched,
                             times ? times->finished : trace.synchronized});
  }
  return trace;
}

}  // namespace lockstep::parallel
