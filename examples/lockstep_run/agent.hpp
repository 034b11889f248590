#pragma once

#include <chrono>
#include <deque>
#include <vector>

#include "lockstep_run/descriptor.hpp"
#include "lockstep_run/message.hpp"
#include "lockstep_run/rank_process.hpp"

namespace run {

/// The supervisor's hand on one host: starts ranks there, passes on what they write and how they
/// end, and ends them all when the supervisor is gone.
class Agent {
 public:
  /// @param in, out pipes from and to the supervisor.
  /// @param silence_limit a supervisor that says nothing for so long is gone; zero: never.
  Agent(int in, int out, std::chrono::milliseconds silence_limit);
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;
  ~Agent();

  /// Serves until the supervisor is gone. @return the exit code.
  int run();

 private:
  using Clock = std::chrono::steady_clock;

  void wait();
  void receive();
  void hear();
  void obey_signals();
  void handle(const Message& message);
  void listen(const std::string& address);
  void start(const Message& message);
  void report();
  void reap();
  void pass_output();
  void note_silence();
  void keep_alive();
  void end_stopped_ranks();
  void end_ranks();
  void send(const Message& message);
  void wait_for_room();

  int in_, out_;
  std::chrono::milliseconds silence_limit_;
  MessageReader reader_;
  std::deque<Message> messages_;  // still to be handled
  Descriptor children_;           // says that one has ended
  Descriptor listener_;           // for rank 0
  std::vector<RankProcess> ranks_;
  int longest_stop_ = 0;  // in seconds; 0: none is too long
  bool is_alone_ = false;
  Clock::time_point last_turn_, next_alive_;
  Clock::duration unheard_{};
};

}  // namespace run
