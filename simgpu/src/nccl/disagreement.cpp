#include "nccl/disagreement.hpp"

#include <cstdio>
#include <string>

#include "base/report.hpp"

namespace simgpu::nccl {
namespace {

std::string describe_rank(const Communicator& communicator, const Call& call, int rank) {
  const Signature* signature = call.called_by(rank);
  const std::string text = "rank " + std::to_string(rank) + ": ";
  if (signature) return text + signature->describe(call.number());
  switch (communicator.exchange()->presence_of(rank)) {
    case Presence::left: return text + "has destroyed its communicator";
    case Presence::aborted: return text + "has aborted its communicator";
    default: return text + "has not come";
  }
}

std::string describe_ranks(const Communicator& communicator, const Call& call) {
  std::string text;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    if (is_point_to_point(call.signature().function) && rank != communicator.rank() &&
        rank != call.signature().root)
      continue;
    text += (text.empty() ? "" : "; ") + describe_rank(communicator, call, rank);
  }
  return text;
}

}  // namespace

void report_disagreement(const Communicator& communicator, const Call& call, const CallSite& site) {
  if (!is_point_to_point(call.signature().function))
    for (int rank = 0; rank < communicator.rank(); ++rank)
      if (call.called_by(rank)) return;
  report(Finding::collective_mismatch,
         communicator.describe() + " disagrees: " + describe_ranks(communicator, call) +
             "\n  rank " + std::to_string(communicator.rank()) + " called it in " + describe(site));
}

// What has a root gives its ranks different buffers, and messages have two ranks.
void report_partly_registered(const Communicator& communicator, const Call& call,
                              const CallSite& site) {
  const Function function = call.signature().function;
  if (communicator.rank() != 0 || is_point_to_point(function) || has_root(function)) return;
  std::string with, without;
  for (std::size_t rank = 0; rank < call.registered_by_rank().size(); ++rank) {
    std::string& ranks = call.registered_by_rank()[rank] ? with : without;
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (with.empty() || without.empty()) return;
  report(Finding::registration, "  " + call.signature().describe(call.number()) + " of the " +
                                    communicator.describe() + ": of rank " + with +
                                    " its buffers are registered, of rank " + without +
                                    " not\n  rank 0 called it in " + describe(site));
}

void warn_about_absence(const Communicator& communicator, const Call& call, const CallSite& site,
                        std::chrono::nanoseconds waited) {
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(waited).count();
  std::fprintf(stderr, "simgpu: %s waits for %lld ms: %s\n  rank %d called it in %s\n",
               communicator.describe().c_str(), static_cast<long long>(milliseconds),
               describe_ranks(communicator, call).c_str(), communicator.rank(),
               describe(site).c_str());
}

}  // namespace simgpu::nccl
