#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <sys/types.h>

#include "lockstep_run/descriptor.hpp"
#include "lockstep_run/hosts.hpp"
#include "lockstep_run/message.hpp"

namespace run {

/// The command that runs an agent: "launcher words host program --agent SECONDS". Where ssh hands
/// it to a shell, the program's path is quoted if it has to be.
/// @param launcher empty: this host, without a launcher.
std::vector<std::string> agent_command(std::vector<std::string> launcher, const std::string& host,
                                       const std::string& program);

/// The supervisor's connection to the agent of one host: a process of the launcher (ssh), and the
/// pipes to it.
class HostLink {
 public:
  using Clock = std::chrono::steady_clock;

  /// @param launcher words before the host's name; empty: this host, without a launcher.
  HostLink(Host host, std::vector<std::string> launcher);
  HostLink(HostLink&&) = default;
  HostLink& operator=(HostLink&&) = delete;

  const Host& host() const { return host_; }
  /// Starts an agent. @return false, with a failure, where there is no process or pipe for it.
  bool connect();
  /// An agent was started, and has not been given up.
  bool is_open() const { return process_ > 0; }
  /// It has answered.
  bool is_up() const { return is_open() && reader_.has_handshake(); }
  /// Why it is not.
  const std::string& failure() const { return failure_; }
  /// What to poll; -1 for none.
  int descriptor() const { return out_.get(); }

  /// What it has said since; an agent that has ended is given up.
  std::vector<Message> receive();
  /// An agent that does not read is given up.
  void send(const Message& message);
  /// Says that the supervisor lives, and counts the time in which the agent does not: a silent one
  /// is given up.
  void keep_alive(Clock::duration passed);
  /// Ends the agent, and so all that it has started.
  void drop(const std::string& why);

 private:
  Host host_;
  std::vector<std::string> launcher_;
  pid_t process_ = -1;
  Descriptor in_, out_;
  MessageReader reader_;
  std::string failure_;
  Clock::duration unheard_{};
};

}  // namespace run
