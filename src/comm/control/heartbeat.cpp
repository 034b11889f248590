#include "comm/control/heartbeat.hpp"

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "comm/timeout.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds default_timeout(30), default_stall_time(45);
constexpr milliseconds shortest_timeout = seconds(2);  // a few heartbeats

// What a variable says, or else the default.
seconds whole_seconds(const char* name, seconds by_default) {
  const char* variable = std::getenv(name);
  if (!variable || !*variable) return by_default;
  const std::string_view text = variable;
  int count = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), count);
  LOCKSTEP_CHECK(status == std::errc() && end == text.data() + text.size(), InvalidArgument, name,
                 " must be a number of seconds, got '", text, "'");
  return seconds(count);
}

// The state letter of /proc/PID/stat, which follows the name in brackets; 0 if there is none.
char process_state(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t bracket = line.rfind(')');
  return bracket != std::string::npos && bracket + 2 < line.size() ? line[bracket + 2] : '\0';
}

// True if data of ours has waited for an acknowledgement for most of a second or more, sent or,
// with no route left to send it on, not.
bool is_unacknowledged(const tcp::Socket& socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  int waiting = 0;
  return getsockopt(socket.descriptor(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
         ioctl(socket.descriptor(), SIOCOUTQ, &waiting) == 0 && waiting > 0 &&
         info.tcpi_last_ack_recv > 900;
}

}  // namespace

milliseconds heartbeat_timeout(std::optional<milliseconds> chosen) {
  const milliseconds timeout = chosen
                                   ? as_long_as_can_be(*chosen)
                                   : whole_seconds("LOCKSTEP_HEARTBEAT_TIMEOUT", default_timeout);
  LOCKSTEP_CHECK(timeout == milliseconds(0) || timeout >= shortest_timeout, InvalidArgument,
                 "the heartbeat timeout must be at least ", shortest_timeout.count(),
                 " ms, or 0 for none, got ", timeout.count(), " ms");
  return timeout;
}

seconds stall_time() {
  const seconds time = whole_seconds("LOCKSTEP_STALL_REPORT", default_stall_time);
  LOCKSTEP_CHECK(time >= seconds(0), InvalidArgument,
                 "LOCKSTEP_STALL_REPORT must be a number of seconds, or 0 for none, got ",
                 time.count());
  return time;
}

bool runs_this_program(int pid) {
  std::error_code error;
  const auto program_of = [&](const std::string& process) {
    return std::filesystem::read_symlink("/proc/" + process + "/exe", error);
  };
  const auto theirs = program_of(std::to_string(pid));
  return !theirs.empty() && theirs == program_of("self");
}

// Of one that is there, /proc may not tell, for want of descriptors.
bool has_ended(int pid) {
  if (::kill(pid, 0) != 0 && errno == ESRCH) return true;
  const char state = process_state(pid);
  return state == 'Z' || state == 'X';
}

std::string explain_missing_heartbeats(const tcp::Socket& socket, const Peer& peer, bool is_here) {
  if (is_here) {
    const char state = process_state(peer.pid);
    if (state == 'T' || state == 't') return "its process is stopped, by a signal or a debugger";
    return "its process does not come to run";
  }
  if (is_unacknowledged(socket))
    return "its host does not acknowledge what is sent there: the network or the host is down";
  return "its host is reachable, but the process is stopped or does not come to run";
}

}  // namespace lockstep::comm::control
