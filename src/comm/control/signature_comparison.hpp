#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "comm/signature.hpp"
#include "lockstep/core/intrusive_ptr.hpp"

/// @file
/// Finds ranks that call different collectives where the backend does not look for them.

namespace lockstep::comm::control {

/// Compares what the ranks of each group call, beside the collectives and not before them: NCCL
/// compares nothing, and ranks that mean different things hang or get wrong numbers. Every rank
/// notes its calls; another thread sends them to rank 0 in batches, which compares those of one
/// group and number. Any thread may call it.
class SignatureComparison : public RefCounted {
 public:
  using Clock = std::chrono::steady_clock;
  /// Brings a batch to rank 0, whose `take` gets it; empty on rank 0 itself.
  using Send = std::function<void(std::string)>;
  /// Called once, on rank 0, with a message that names the ranks and shows what each called.
  using Report = std::function<void(const std::string&)>;

  SignatureComparison(Send send, Report report)
      : compares_here_(!send), send_(std::move(send)), report_(std::move(report)) {}

  /// This rank's call of a collective in a group. Never blocks on another rank.
  /// @param size number of the group's ranks.
  void note(const std::string& group, int rank, int size, const Signature& signature);
  /// This rank's end of a message to or from the signature's peer.
  /// @param number how many messages the one rank has sent the other before.
  void note_message(const std::string& group, int rank, int size, const Signature& signature,
                    std::uint64_t number);
  /// Sends what was noted; on rank 0 also reports a disagreement some of whose ranks are late.
  void flush();
  /// What a rank sent. Reports what no rank sends, too.
  void take(std::string_view batch);
  /// Sends and reports nothing from now on.
  void close();

 private:
  struct Call {
    int rank = 0;
    Signature signature;
  };
  struct Collective {
    std::vector<Call> calls;
    bool disagrees = false;
    Clock::time_point first_call;
  };
  struct Key {
    std::string group;
    std::int32_t from = -1, to = -1;  // of a message
    std::uint64_t number = 0;         // of the collective, or of the message on its way
    auto operator<=>(const Key&) const = default;
    bool is_message() const { return from >= 0; }
  };

  void append_entry(const Key& key, int rank, int size, const Signature& signature);
  void read(std::string_view batch);
  void add(const Key& key, int size, const Call& call);
  void send(std::string batch);
  void report(const std::string& message);
  void report_late();
  static std::string describe(const Key& key, const Collective& collective);

  const bool compares_here_;
  std::mutex callbacks_mutex_;  // guards the callbacks against `close`
  Send send_;
  Report report_;

  std::mutex noted_mutex_;
  std::vector<std::string> noted_;  // batches; the last one is open

  std::mutex pending_mutex_;
  std::map<Key, Collective> pending_;  // rank 0: not all ranks have called these
};

}  // namespace lockstep::comm::control
