#include "comm/timeout.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds default_timeout = std::chrono::minutes(10);
constexpr std::chrono::seconds longest(100'000'000);

milliseconds seconds_from(const char* name, std::string_view text) {
  double seconds = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  LOCKSTEP_CHECK(status == std::errc() && end == text.data() + text.size() && seconds >= 0.001,
                 InvalidArgument, name, " must be a positive number of seconds, got '", text, "'");
  const double most = static_cast<double>(longest.count());
  return milliseconds(static_cast<std::int64_t>(std::min(seconds, most) * 1e3));
}

}  // namespace

milliseconds as_long_as_can_be(milliseconds wait) { return std::min<milliseconds>(wait, longest); }

std::optional<milliseconds> seconds_in_variable(const char* name) {
  const char* const text = std::getenv(name);
  if (!text || !*text) return std::nullopt;
  return seconds_from(name, text);
}

CommunicatorOptions with_timeout(CommunicatorOptions options) {
  if (!options.timeout)
    options.timeout = seconds_in_variable("LOCKSTEP_TIMEOUT").value_or(default_timeout);
  LOCKSTEP_CHECK(options.timeout > milliseconds(0), InvalidArgument,
                 "the timeout of collectives must be positive, got ", options.timeout->count(),
                 " ms");
  options.timeout = as_long_as_can_be(*options.timeout);
  options.leave_timeout = as_long_as_can_be(options.leave_timeout);
  return options;
}

}  // namespace lockstep::comm
