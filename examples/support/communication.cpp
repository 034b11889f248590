#include "support/communication.hpp"

#include <algorithm>

namespace examples {

namespace ls = lockstep;

void CommunicationOptions::apply_to(ls::DistributedDataParallelOptions& replica) const {
  replica.bucket_plan = plan == "measured" ? ls::parallel::BucketPlanning::measured
                                           : ls::parallel::BucketPlanning::pytorch;
  replica.bucket_bytes = std::max<std::size_t>(1, static_cast<std::size_t>(bucket_mb * (1 << 20)));
  replica.first_bucket_bytes = std::min(replica.first_bucket_bytes, replica.bucket_bytes);
}

ls::comm::CommunicatorOptions CommunicationOptions::communicator() const {
  ls::comm::CommunicatorOptions options{.backend = comm};
  if (timeout)
    options.timeout = std::chrono::milliseconds(
        std::max<std::int64_t>(1, static_cast<std::int64_t>(*timeout * 1e3)));
  return options;
}

void add_communication_options(CLI::App& app, CommunicationOptions& o) {
  add_comm_option(app, o.comm);
  constexpr double most_mb = 1 << 20, most_seconds = 1e9;
  app.add_option("--plan", o.plan,
                 "Where buckets of gradients end: pytorch (sizes alone), or measured (the times of "
                 "the first steps)")
      ->check(CLI::IsMember({"measured", "pytorch"}));
  app.add_option(
         "--reduction", o.reduction,
         "Sums of gradients: default, or reproducible (the same bits on 1, 2, 4, ... ranks)")
      ->check(CLI::IsMember({"default", "reproducible"}));
  app.add_option("--bucket-mb", o.bucket_mb,
                 "MiB of gradients in a bucket; with --plan measured, until it is planned")
      ->check(positive(most_mb));
  app.add_option("--trace", o.trace,
                 "Write a Chrome trace of the first 64 steps' backwards on all ranks here (JSON)")
      ->check(writable_file());
  app.add_option("--timeout", o.timeout,
                 "Seconds that a collective waits for other ranks; default: LOCKSTEP_TIMEOUT, else "
                 "600")
      ->check(positive(most_seconds));
}

StepTraces::StepTraces(const CommunicationOptions& options, ls::Communicator& group)
    : path_(options.trace) {
  if (!path_.empty()) trace_.emplace(group);
}

void StepTraces::add(const ls::parallel::Reducer& reducer) {
  constexpr int most_steps = 64;
  if (trace_ && steps_++ < most_steps) trace_->add(reducer.trace());
}

void StepTraces::write() const {
  if (!trace_) return;
  if (path_.has_parent_path()) std::filesystem::create_directories(path_.parent_path());
  trace_->write(path_);
}

}  // namespace examples
