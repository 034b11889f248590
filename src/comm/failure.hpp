#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <string>

namespace lockstep::comm {

/// An error kept as values and thrown anew in each thread that asks: threads then never share an
/// exception object.
class Failure {
 public:
  /// Keeps a copy of the exception that is being handled.
  static Failure from_current();
  /// A Mismatch.
  static Failure mismatch(const std::string& message);
  /// A Timeout.
  static Failure timeout(const std::string& message);
  /// A PeerFailure.
  static Failure from_peer(const std::string& message);

  /// The message.
  const std::string& message() const { return message_; }
  /// Its first line.
  std::string summary() const;
  /// True if another rank was the first to fail.
  bool is_from_peer() const;
  /// True if the ranks' calls disagreed.
  bool is_mismatch() const;
  /// Throws it: a caller is told.
  [[noreturn]] void raise() const;
  /// True once a caller was told, of this or of a copy.
  bool is_told() const { return told_->load(); }
  /// The program knows it anyway.
  void note_told() const { told_->store(true); }
  /// The same as an exception object.
  std::exception_ptr as_exception() const;
  /// Keeps it as a failure in the background unless a caller was told; for the end of what failed.
  void keep_unless_told() const noexcept;
  /// Puts what was under way in front of the message; of a mismatch, which says first what differs,
  /// on a line behind it.
  void add_context(const std::string& context);

 private:
  [[noreturn]] void throw_copy() const;

  enum class Kind {
    mismatch,
    timeout,
    peer,
    mpi,
    nccl,
    cuda,
    argument,
    unsupported,
    corrupt,
    other
  };
  Kind kind_ = Kind::other;
  std::string message_;
  // Of a library's error, whose message is made of them.
  std::string call_;
  std::string detail_;
  int status_ = 0;
  std::shared_ptr<std::atomic<bool>> told_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace lockstep::comm
