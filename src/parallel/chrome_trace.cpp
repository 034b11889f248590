#include "lockstep/parallel/chrome_trace.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "lockstep/comm/host_values.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::parallel {
namespace {

/// Those of the first replica; of a backward through several, the others have pairs behind.
enum Track { computation, communication, tracks };

/// As JSON has it, whatever the bytes are.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string name_of_track(const std::string& what, int rank, int track, const std::string& name) {
  return detail::concat(R"({"ph": "M", "name": ")", what, R"(", "pid": )", rank, R"(, "tid": )",
                        track, R"(, "args": {"name": )", quoted(name), "}}");
}

}  // namespace

ChromeTrace::ChromeTrace(comm::Communicator& group) : group_(group) {
  group.barrier({.label = "start of a trace"}).synchronize();
  origin_ = former_end_ = TraceClock::now();
  const int rank = group.rank();
  events_ = name_of_track("process_name", rank, computation, detail::concat("rank ", rank));
}

/// The tracks of a backward's n-th replica begin with this number.
int ChromeTrace::tracks_of(std::size_t replica) {
  const auto first = static_cast<int>(replica) * tracks;
  if (replica < replicas_) return first;
  const std::string which = replica == 0 ? "" : detail::concat(" of replica ", replica + 1);
  events_ +=
      ",\n" +
      name_of_track("thread_name", group_.rank(), first + computation, "computation" + which) +
      ",\n" +
      name_of_track("thread_name", group_.rank(), first + communication, "communication" + which);
  ++replicas_;
  return first;
}

void ChromeTrace::add_event(const std::string& name, int track, TraceClock::time_point begin,
                            TraceClock::time_point end, const std::string& arguments) {
  const auto us = [](TraceClock::duration time) {
    return std::chrono::duration<double, std::micro>(time).count();
  };
  lockstep::detail::TextStream out;
  out.precision(3);
  out << std::fixed << ",\n{\"ph\": \"X\", \"name\": " << quoted(name)
      << ", \"pid\": " << group_.rank() << ", \"tid\": " << track
      << ", \"ts\": " << us(begin - origin_) << ", \"dur\": " << us(end - begin) << ", \"args\": {"
      << arguments << "}}";
  events_ += out.str();
}

void ChromeTrace::add(const ReducerTrace& trace) {
  // One of before, or a captured step's, whose reducer still has the one that was told.
  if (trace.first_gradient < origin_ || !told_.insert(trace.first_gradient).second) return;
  // A backward through several replicas has a trace of each, which overlap.
  of_backward_ = trace.first_gradient < former_end_ ? of_backward_ + 1 : 0;
  const int first = tracks_of(of_backward_);
  if (of_backward_ == 0)
    add_event("update, forward", first + computation, former_end_, trace.first_gradient);
  add_event("backward", first + computation, trace.first_gradient, trace.backward_end);
  add_event("wait for buckets", first + computation, trace.backward_end, trace.synchronized);
  for (const BucketTrace& bucket : trace.buckets)
    add_event(bucket.label, first + communication, bucket.started, bucket.finished,
              detail::concat("\"bytes\": ", bucket.bytes));
  former_end_ = std::max(former_end_, trace.synchronized);
}

void ChromeTrace::write(const std::filesystem::path& path) const {
  const std::vector<std::string> all = comm::all_gather_bytes(group_, events_, "events of a trace");
  if (group_.rank() != 0) return;
  std::ofstream out(path);
  out << "{\"traceEvents\": [\n";
  for (std::size_t rank = 0; rank < all.size(); ++rank) out << (rank ? ",\n" : "") << all[rank];
  out << "\n]}\n";
  out.close();
  LOCKSTEP_CHECK(out, InvalidArgument, "cannot write a trace to ", path.string());
}

}  // namespace lockstep::parallel
