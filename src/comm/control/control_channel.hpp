#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/control/control_message.hpp"
#include "comm/control/stop_agreement.hpp"
#include "comm/control/termination.hpp"
#include "comm/inquiry_hub.hpp"
#include "comm/tcp/connection_watch.hpp"
#include "lockstep/comm/bootstrap.hpp"

namespace lockstep::comm::control {

/// Why the job ends.
struct JobFailure {
  std::string text;  ///< ready for people: names the rank
  int exit_code = 1;
  MessageType type = MessageType::failed;  ///< failed, lost or stalled
  bool is_consequence = false;  ///< of another rank's failure, which is on its way to this one
};

/// What a control channel calls, on its own thread.
struct ControlHandlers {
  /// Once, with the job's first failure, unless this rank reported it itself.
  std::function<void(const JobFailure&)> on_failure;
  /// With what another rank gave to `announce`, or several of these with a news::separator between
  /// them.
  std::function<void(const std::string& news)> on_news;
  /// Rank 0: with what another rank gave to `send_signatures`.
  std::function<void(int rank, std::string_view batch)> on_signatures;
  /// Every half a second. Must not wait.
  std::function<void()> on_heartbeat = nullptr;
  /// How long the oldest operation of this rank has run. Must not wait.
  std::function<std::chrono::steady_clock::duration()> running_for = nullptr;
  /// When ranks have been in one operation for long: rank 0 with a line that says who is behind.
  /// Also when the supervisor of the run asks.
  std::function<void(const std::string& text)> on_stall = nullptr;
};

/// A star of connections to rank 0 beside the collectives: ranks tell each other why they end, and
/// see each other vanish or stop sending heartbeats. A thread of its own listens, so it works while
/// the others are stuck.
class ControlChannel {
 public:
  /// Connects all ranks; every rank must call it. Binds to loopback if all ranks are on one host.
  /// @param heartbeat_timeout a rank that sends nothing for so long is lost; zero: never.
  /// @param stall_time ranks that are in one operation for so long are told who is behind; zero:
  /// never.
  ControlChannel(Bootstrap& bootstrap, ControlHandlers handlers,
                 std::chrono::milliseconds heartbeat_timeout,
                 std::chrono::seconds stall_time = std::chrono::seconds(0));
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;
  /// Leaves in good order: once all have come here, or one is lost.
  ~ControlChannel();

  /// Tells the job that this rank failed. A consequence lets its cause come first.
  /// @return true if rank 0 knows the job's first failure and has said it; false if the caller is
  /// the one to say this one.
  bool report(const JobFailure& failure);

  /// Says goodbye to the other ranks and waits until all have said it. A failure before that still
  /// ends the job, also on ranks that are done: a rank that has gone on to MPI_Finalize could
  /// neither hear of it nor be waited for. Once; the destructor does it otherwise.
  void leave();

  /// Tells the other ranks news of a GroupRegistry; those of an inquiry go to whom they concern.
  /// From any thread.
  void announce(const std::string& news);
  /// Rank 0: ends the job with a failure that it found out itself, outside the training thread.
  void fail_job(const JobFailure& failure) { fail(failure, -1); }

  /// Another rank than 0: sends rank 0 what SignatureComparison makes.
  void send_signatures(const std::string& batch);

  /// The job's first failure, once it is known here.
  std::optional<JobFailure> failure();

  /// Whether rank 0, which says things to all, has missed its last heartbeats; false on itself.
  bool hub_is_silent() const noexcept { return hub_is_silent_; }

  /// On which step the ranks stop.
  StopAgreement& stop() { return stop_; }
  const StopAgreement& stop() const { return stop_; }

 private:
  struct Link {
    int rank = 0;
    tcp::Socket socket;
    MessageReader reader = {};
    bool has_left = false;
    bool has_no_room = false;  // it ended because the peer does not read; guarded as the socket
    tcp::Clock::duration unheard{};  // how long it has sent nothing
    int running_seconds = 0;         // its oldest operation
    bool can_be_seen = false;        // its process can be, and was seen
  };

  void connect();
  const Peer& peer_of(const Link& link) const;
  bool is_known_by_pid(const Link& link) const;
  int index_of(const Link& link) const { return static_cast<int>(&link - links_.data()); }
  void listen();
  bool is_done();
  void wait();
  void serve(Link& link);
  void handle(Link& link, const Message& message);
  void fail(const JobFailure& failure, int origin);
  void broadcast(const Message& message, int except);
  void hand_on(const Message& message, int origin);
  void deliver_due();
  void send_to(Link& link, const Message& message);
  void lose(const Link& link, const std::string& how);
  void keep_alive();
  void check_heartbeats();
  int running_seconds() const;
  void check_stall();
  void check_termination();
  void check_stop_signals();
  bool wait_for_failure(std::chrono::milliseconds limit);
  bool wait_for_answer();

  Bootstrap& bootstrap_;
  ControlHandlers handlers_;
  std::chrono::milliseconds heartbeat_timeout_;
  std::chrono::seconds stall_time_;
  bool is_stall_told_ = false;
  std::optional<TerminationNotice> termination_notice_;
  std::mutex send_mutex_;  // guards the links' sockets against being closed while one sends
  std::vector<Link> links_;
  tcp::ConnectionWatch watch_;  // over the links, by their places
  tcp::Socket wake_;

  StopAgreement stop_;
  InquiryHub inquiries_;  // of rank 0

  std::mutex mutex_;
  std::condition_variable failed_;
  std::optional<JobFailure> failure_;
  std::atomic<bool> hub_is_silent_ = false;  // rank 0, to the others
  bool leaving_ = false, abandoned_ = false;
  std::optional<tcp::Deadline> termination_;  // of a signal that waits for its cause
  tcp::Clock::time_point last_turn_, next_heartbeat_;
  std::thread thread_;
};

}  // namespace lockstep::comm::control
