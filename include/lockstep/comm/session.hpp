#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/comm/bootstrap.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/device.hpp"

/// @file
/// A process' membership of its job: the first object of a training program.

namespace lockstep {

/// Options of a session; the defaults suit a program started by a launcher.
struct SessionOptions {
  /// "auto" (the GPU of the local rank, else the CPU), "cpu", "cuda" or "cuda:1". Empty: the value
  /// of `--device` on the command line, else "auto".
  std::string device;
  /// Threads of CPU ops. 0: OMP_NUM_THREADS, else the cores this process may use, divided among the
  /// ranks that share them.
  int threads = 0;
  /// A rank whose heartbeats stay away for so long, because its process is stopped or its network
  /// down, is lost, and the job ends; 0: no limit. Heartbeats go on while a rank computes.
  /// Default: LOCKSTEP_HEARTBEAT_TIMEOUT in seconds, else 30 s; at least 2 s.
  std::optional<std::chrono::milliseconds> heartbeat_timeout = std::nullopt;
  /// Why this rank cannot run, such as a command line that makes no sense; empty: it can. All ranks
  /// then throw the first rank's as InvalidArgument, so that none waits for one that gave up.
  std::string refusal = {};
  /// How the ranks find each other.
  comm::BootstrapOptions bootstrap = {};
  /// Timeouts and checks of the world communicator. A collective that waits for a rank longer than
  /// its timeout ends the job: LOCKSTEP_TIMEOUT in seconds, else 10 minutes.
  comm::CommunicatorOptions communicator = {};
};

/// Joins the job and stays in it until destroyed: ranks, device, world communicator, and a control
/// channel over which a failure of one rank ends the others within seconds. Errors that leave the
/// program, and ranks that vanish or stop responding, are reported once, with the rank; a
/// collective that needs a rank that has left fails at once. In a job of several ranks SIGTERM and
/// SIGINT, unless the program handles them, end all ranks, half a second late: a failure behind
/// them is told first; a StopRequest lets them stop after a step instead. Its end leaves all groups
/// of this rank, whoever still owns them: they refuse later operations. It waits for the other
/// ranks; std::exit is an end, too. A process that a rank forks is none, and ends without a word to
/// the job; by _exit or exec, as destructors that wait for threads (of a checkpoint::Manager, a
/// DataLoader, a group) would do so for ever there. One at a time.
class Session {
 public:
  /// Joins. Blocks until all ranks are there.
  /// @param argc, argv the command line; only `--device` is looked at, and nothing is changed.
  /// @throws InvalidArgument, Unsupported, Timeout as make_bootstrap, or for the device.
  Session(int argc, const char* const* argv, const SessionOptions& options = {});
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  /// This process' number, 0 to size() - 1.
  int rank() const;
  /// Number of processes.
  int size() const;
  /// Number of this process among those of its host.
  int local_rank() const;
  /// Number of processes on this host.
  int local_size() const;
  /// True on rank 0, which speaks for the job.
  bool is_main() const { return rank() == 0; }
  /// Where this rank's tensors live.
  Device device() const;
  /// All ranks, for buffers on `device()`.
  const CommunicatorPtr& world() const;
  /// All ranks, for buffers on the CPU: `world()` where the device is the CPU; else a group of its
  /// own, which the first call makes: that blocks, and every rank must make it.
  const CommunicatorPtr& host_world();
  /// The processes of the job.
  comm::Bootstrap& bootstrap() const;

  /// Reports an error to the whole job and ends it; from any thread.
  /// @param exit_code what the processes, and the launcher, return.
  [[noreturn]] void fail(const std::string& message, int exit_code = 1) noexcept;

  /// Makes a session, runs `body` in it, and returns the program's exit code. An exception becomes
  /// one line, "[rank 2] error: ...", and ends all ranks: code 2 for InvalidArgument, Unsupported
  /// and CorruptData, which another start would meet again, 1 for all else. Another code than 0
  /// that `body` returns ends all ranks, too, but for StopRequest::exit_code behind a stop on which
  /// all have agreed.
  static int run(int argc, const char* const* argv, const std::function<int(Session&)>& body,
                 const SessionOptions& options = {});

 private:
  friend class StopRequest;
  struct State;
  explicit Session(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
