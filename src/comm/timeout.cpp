#include "comm/timeout.hpp"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds default_timeout = std::chrono::minutes(10);

milliseconds seconds_from(std::string_view text) {
  constexpr double most = 1e9;  // beyond a life
  double seconds = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  LOCKSTEP_CHECK(status == std::errc() && end == text.data() + text.size() && seconds >= 0.001 &&
                     seconds <= most,
                 InvalidArgument, "LOCKSTEP_TIMEOUT must be a positive number of seconds, got '",
                 text, "'");
  return milliseconds(static_cast<std::int64_t>(seconds * 1e3));
}

}  // namespace

CommunicatorOptions with_timeout(CommunicatorOptions options) {
  const char* variable = std::getenv("LOCKSTEP_TIMEOUT");
  if (!options.timeout)
    options.timeout = variable && *variable ? seconds_from(variable) : default_timeout;
  LOCKSTEP_CHECK(options.timeout > milliseconds(0), InvalidArgument,
                 "the timeout of collectives must be positive, got ", options.timeout->count(),
                 " ms");
  return options;
}

}  // namespace lockstep::comm
