#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "lockstep_run/descriptor.hpp"
#include "lockstep_run/launch_plan.hpp"
#include "lockstep_run/progress_page.hpp"

namespace run {

/// Cuts what a process writes into whole lines.
class LineBuffer {
 public:
  /// Takes bytes. @return the lines that are complete; an overlong one counts as complete.
  std::string add(std::string_view bytes);
  /// What is left, as a line.
  std::string rest();

 private:
  std::string pending_;
};

/// One rank: a process in a group of its own, with whatever it starts. It is killed when its agent
/// dies, however that happens.
class RankProcess {
 public:
  /// Called with stream (1 or 2) and lines.
  using Output = std::function<void(int stream, const std::string& lines)>;

  /// Starts it; its standard input is empty.
  /// @param listener inherited by it; -1: none.
  /// @throws InvalidArgument if the program cannot be run.
  RankProcess(int rank, const LaunchPlan& plan, int listener);
  RankProcess(RankProcess&&) = default;
  RankProcess& operator=(RankProcess&&) = delete;

  int rank() const { return rank_; }
  pid_t pid() const { return pid_; }
  Progress progress() const { return progress_.progress(); }
  bool is_running() const { return pid_ > 0; }
  /// Asks the program to say what it is at.
  void ask() { progress_.ask(); }
  /// What it does now, of what the system knows: "sleeps".
  const char* activity() const;
  /// The descriptors to poll for its output; -1 for one that has ended.
  std::array<int, 2> outputs() const { return {streams_[0].read.get(), streams_[1].read.get()}; }
  /// Passes on what it has written.
  void read(const Output& output);
  /// Looks whether it is stopped, to be called every second. @return for how many times in a row.
  int look_if_stopped();
  /// Sends a signal to it, and SIGKILL to all that it has started, too.
  void signal(int number) const;
  /// Ends what is left of it, and waits for it. @return its status, as of waitpid.
  int finish(const Output& output);

 private:
  struct Stream {
    Descriptor read;
    LineBuffer lines;
  };

  int rank_;
  pid_t pid_ = -1;
  int stops_ = 0;
  ProgressPage progress_;
  std::array<Stream, 2> streams_;
};

}  // namespace run
