#include "comm/timeout.hpp"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds default_timeout = std::chrono::minutes(10);

milliseconds seconds_from(const char* name, std::string_view text) {
  constexpr double most = 1e9;  // beyond a life
  double seconds = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  LOCKSTEP_CHECK(status == std::errc() && end == text.data() + text.size() && seconds >= 0.001 &&
                     seconds <= most,
                 InvalidArgument, name, " must be a positive number of seconds, got '", text, "'");
  return milliseconds(static_cast<std::int64_t>(seconds * 1e3));
}

}  // namespace

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
  return options;
}

}  // namespace lockstep::comm
