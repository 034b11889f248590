#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <unistd.h>

#include "comm/control/control_channel.hpp"
#include "comm/signature_comparison.hpp"
#include "lockstep/comm/session.hpp"

namespace lockstep {

/// What a session holds, and what it does when the job fails.
struct Session::State {
  using JobFailure = comm::control::JobFailure;

  /// Meets the other ranks.
  explicit State(const SessionOptions& session_options);
  ~State();

  /// Joins the job on a device: "auto", "cpu", "cuda" or "cuda:N".
  void join(const std::string& wanted);
  /// Leaves in good order, unless an exception is on its way out.
  void leave() noexcept;
  /// Whether this process was forked by the rank, and is none.
  bool is_forked() const { return process_ != getpid(); }
  /// Reports a failure of this rank to the job, and ends it; of a forked process, ends that alone.
  [[noreturn]] void fail(const JobFailure& failure) noexcept;
  /// Whether this code of a program that ends is one with which all ranks leave in good order.
  bool is_good_order(int exit_code) const;
  comm::control::StopAgreement& stop_agreement() { return control_->stop(); }

  SessionOptions options;
  std::unique_ptr<comm::Bootstrap> bootstrap;
  Device device = cpu;
  CommunicatorPtr world, host_world;

 private:
  void configure(const std::string& wanted);
  void connect(std::chrono::milliseconds heartbeat_timeout, std::chrono::seconds stall_time);
  void on_job_failure(const JobFailure& failure);
  void on_stall(const std::string& text);
  void end_groups(const JobFailure& failure);
  [[noreturn]] static void on_terminate();
  static void end_with_the_program();
  static void on_exit(int exit_code, void*) noexcept;
  void close() noexcept;

  comm::ComparisonPtr comparison_;
  std::optional<comm::control::ControlChannel> control_;
  std::terminate_handler previous_handler_ = nullptr;
  const std::thread::id thread_ = std::this_thread::get_id();  // that made it
  const pid_t process_ = getpid();
  bool is_closed_ = false;

  static std::atomic<State*> current;
};

namespace comm {

/// What the exception in flight says, and the program's exit code for it.
control::JobFailure describe_current_exception();

/// Prints a line to stderr.
void print_error(const std::string& text);

}  // namespace comm
}  // namespace lockstep
