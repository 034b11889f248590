#include "checkpoint/check_options.hpp"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/parallel/agreement.hpp"

namespace lockstep::checkpoint {

void check(const ManagerOptions& options) {
  LOCKSTEP_CHECK(options.keep_last >= 1, InvalidArgument, "keep_last is ", options.keep_last,
                 "; at least the newest checkpoint stays");
  const SaveInterval& interval = options.interval;
  LOCKSTEP_CHECK((interval.steps > 0) + (interval.seconds > 0) + (interval.max_overhead > 0) == 1 &&
                     interval.steps >= 0 && std::isfinite(interval.seconds) &&
                     interval.max_overhead < 1,
                 InvalidArgument, "an interval of ", interval.steps, " steps, ", interval.seconds,
                 " seconds and an overhead of ", interval.max_overhead,
                 "; give one of them, above 0, and an overhead below 1");
  LOCKSTEP_CHECK(options.keep_every >= 0 && options.lock_seconds >= 0 &&
                     options.snapshot_every >= 0 && options.file_bytes > 0,
                 InvalidArgument, "keep_every is ", options.keep_every, ", lock_seconds ",
                 options.lock_seconds, ", snapshot_every ", options.snapshot_every, ", file_bytes ",
                 options.file_bytes, "; give numbers that are not negative, and files a size");
}

void check_same(comm::Communicator& group, const ManagerOptions& options) {
  const auto text = [](const auto& value) { return detail::concat(value); };
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  const std::vector<std::pair<std::string, std::string>> settings{
      {"interval.steps", text(options.interval.steps)},
      {"interval.seconds", text(options.interval.seconds)},
      {"interval.max_overhead", text(options.interval.max_overhead)},
      {"keep_last", text(options.keep_last)},
      {"keep_every", text(options.keep_every)},
      {"keep_best", flag(options.keep_best)},
      {"asynchronous", flag(options.asynchronous)},
      {"read_back", flag(options.read_back)},
      {"partial", flag(options.partial)},
      {"file_bytes", text(options.file_bytes)},
      {"snapshot_every", text(options.snapshot_every)}};
  parallel::check_same_settings(group, settings);
}

}  // namespace lockstep::checkpoint
