#include "comm/nccl/launch_order.hpp"

#include <cstdlib>
#include <map>
#include <string_view>

#include <nccl.h>

#include "comm/stream_order.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep::comm {
namespace {

constexpr const char* variable = "NCCL_LAUNCH_ORDER_IMPLICIT";
constexpr int first_version = 22600;

bool nccl_has_it() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess && version >= first_version;
}

bool nccl_keeps_order() {
  const char* const value = std::getenv(variable);
  return value && std::string_view(value) == "1" && nccl_has_it();
}

}  // namespace

void LaunchOrder::ask_nccl_for_it() {
  if (nccl_has_it()) setenv(variable, "1", 0);
}

LaunchOrder& LaunchOrder::of(Device device) {
  static std::mutex mutex;
  static auto* const all = new std::map<int, LaunchOrder>;  // groups in static storage use it
  const std::lock_guard lock(mutex);
  return (*all)[device.index];
}

void LaunchOrder::take_turn(StreamRef stream) {
  static const bool is_kept_by_nccl = nccl_keeps_order();
  if (is_kept_by_nccl) return;
  const StepRecording* const step = StepRecording::current();
  const std::uint64_t recording = step ? step->number() : 0;
  const std::lock_guard lock(mutex_);
  // What is inside a graph, and what is outside, is ordered by the graph's launch.
  if (last_ && *last_ != stream && recording == recording_) order_after(*last_, stream);
  last_ = stream;
  recording_ = recording;
}

void LaunchOrder::order_before(StreamRef stream) {
  const std::lock_guard lock(mutex_);
  if (last_ && recording_ == 0) order_after(*last_, stream);
}

}  // namespace lockstep::comm
