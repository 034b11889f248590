#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/control/control_message.hpp"
#include "lockstep/comm/bootstrap.hpp"

namespace lockstep::comm::control {

/// Why the job ends.
struct JobFailure {
  std::string text;  ///< ready for people: names the rank
  int exit_code = 1;
  bool is_lost = false;         ///< a rank vanished, rather than reported an error
  bool is_consequence = false;  ///< of another rank's failure, which is on its way to this one
};

/// A star of connections to rank 0 beside the collectives: ranks tell each other why they end, and
/// see each other vanish. A thread of its own listens, so it works while the others are stuck.
class ControlChannel {
 public:
  /// Connects all ranks; every rank must call it. Binds to loopback if all ranks are on one host.
  /// @param on_failure called once, on the channel's thread, with the job's first failure, unless
  /// this rank reported it itself.
  ControlChannel(Bootstrap& bootstrap, std::function<void(const JobFailure&)> on_failure);
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;
  /// Leaves in good order; rank 0 stays until all have left or one is lost.
  ~ControlChannel();

  /// Tells the job that this rank failed. A consequence lets its cause come first.
  /// @return true if rank 0 knows the job's first failure and has said it; false if the caller is
  /// the one to say this one.
  bool report(const JobFailure& failure);

  /// The job's first failure, once it is known here.
  std::optional<JobFailure> failure();

 private:
  struct Link {
    int rank = 0;
    tcp::Socket socket;
    MessageReader reader;
    bool has_left = false;
  };

  void connect();
  void listen();
  bool is_done();
  void wait();
  void serve(Link& link);
  void handle(Link& link, const Message& message);
  void fail(const JobFailure& failure, int origin);
  void broadcast(const Message& message, int except);
  void check_termination();
  bool wait_for_failure(std::chrono::milliseconds limit);

  Bootstrap& bootstrap_;
  std::function<void(const JobFailure&)> on_failure_;
  std::mutex send_mutex_;  // guards the links' sockets against being closed while one sends
  std::vector<Link> links_;
  tcp::Socket wake_;

  std::mutex mutex_;
  std::condition_variable failed_;
  std::optional<JobFailure> failure_;
  bool leaving_ = false, abandoned_ = false;
  std::optional<tcp::Deadline> termination_;  // of a SIGTERM that waits for its cause
  std::thread thread_;
};

}  // namespace lockstep::comm::control
