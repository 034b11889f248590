#include "lockstep/parallel/communication_report.hpp"

#include <iomanip>
#include <sstream>

#include "lockstep/core/error.hpp"

namespace lockstep::parallel {
namespace {

std::string ms(double seconds) {
  lockstep::detail::TextStream out;
  out << std::fixed << std::setprecision(3) << seconds * 1e3 << " ms";
  return out.str();
}

void write(std::ostream& out, const char* what, const HiddenCommunication& times) {
  out << what << ": computation " << ms(times.computation);
  if (times.communication <= 0) {
    out << ", nothing was exchanged\n";
    return;
  }
  out << ", communication " << ms(times.communication) << ", exposed " << ms(times.exposed)
      << ", hidden share " << times.hidden_share << '\n';
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const CommunicationReport& report) {
  lockstep::detail::TextStream text;
  text << std::setprecision(3);
  for (std::size_t b = 0; b < report.buckets.size(); ++b) {
    const BucketReport& bucket = report.buckets[b];
    text << "bucket " << b << ": " << bucket.bytes << " bytes, complete with " << bucket.last
         << ", ready " << ms(bucket.achieved.ready) << ", reduced from "
         << ms(bucket.achieved.start) << " to " << ms(bucket.achieved.end);
    if (bucket.predicted)
      text << " (predicted " << ms(bucket.predicted->start) << " to " << ms(bucket.predicted->end)
           << ')';
    text << '\n';
  }
  write(text, "achieved", report.achieved);
  if (report.predicted) {
    const auto& [cost, now, by_sizes_alone, at_best] = *report.predicted;
    write(text, "predicted", now);
    write(text, "predicted by sizes alone", by_sizes_alone);
    write(text, "predicted at best", at_best);
    text << "a message costs " << ms(cost.latency);
    if (cost.seconds_per_byte > 0)
      text << " and its bytes by " << 1e-9 / cost.seconds_per_byte << " GB/s";
    text << '\n';
  }
  return out << text.str();
}

}  // namespace lockstep::parallel
