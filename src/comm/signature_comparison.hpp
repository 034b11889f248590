#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/signature.hpp"
#include "lockstep/core/intrusive_ptr.hpp"

/// @file
/// Finds ranks that call different collectives where the backend does not look for them, or that
/// end differently where no collective follows.

namespace lockstep::comm {

/// Compares what the ranks of each group call, beside the collectives and not before them: NCCL
/// compares nothing, and ranks that mean different things hang or get wrong numbers. Every rank
/// notes its calls, and declares how it ends what it has trained; another thread sends them to rank
/// 0 in batches, which compares those of one group and number. Any thread may call it.
class SignatureComparison : public RefCounted {
 public:
  using Clock = std::chrono::steady_clock;
  /// Longest batch.
  static constexpr std::size_t max_batch = 8192;
  /// Bytes of one rank's calls, some 80,000, that others have not made.
  static constexpr std::size_t max_pending = std::size_t{32} << 20;
  /// Brings a batch to rank 0, whose `take` gets it; empty on rank 0 itself.
  using Send = std::function<void(std::string)>;
  /// Called once, on rank 0, with a message that names the ranks and shows what each called.
  using Report = std::function<void(const std::string&)>;

  SignatureComparison(Send send, Report report)
      : compares_here_(!send), send_(std::move(send)), report_(std::move(report)) {}

  /// This rank's call of a collective in a group. Never blocks on another rank.
  /// @param size number of the group's ranks. @param label the whole one; without it a message has
  /// what the signature has of it.
  void note(const std::string& group, int rank, int size, const Signature& signature,
            std::string_view label = {});
  /// This rank's end of a message to or from the signature's peer.
  /// @param number how many messages the one rank has sent the other before.
  void note_message(const std::string& group, int rank, int size, const Signature& signature,
                    std::uint64_t number);
  /// How this rank ends what all ranks of the group began alike; it is sent at once.
  /// @param subject a number that tells such declarations of the group apart, one by each rank.
  void declare(const std::string& group, int rank, int size, std::uint64_t subject,
               const std::string& end);
  /// Sends what was noted; on rank 0 also reports a disagreement some of whose ranks are late.
  void flush();
  /// What a rank of the job sent. Reports what no rank sends, too, and a rank that is so far ahead
  /// of the others that its calls, which wait for theirs, take more than `max_pending`.
  void take(std::string_view batch, int sender = 0);
  /// Sends and reports nothing from now on.
  void close();

 private:
  struct Call {
    int rank = 0;
    Signature signature;
    int sender = 0;  // its number in the job
  };
  struct Collective {
    std::vector<Call> calls;
    bool disagrees = false;
    Clock::time_point first_call;
  };
  enum class Kind : std::int32_t { collective, message, declaration };
  struct Key {
    std::string group;
    Kind kind = Kind::collective;
    std::int32_t from = 0, to = 0;  // of a message
    std::uint64_t number = 0;       // of the collective, the message on its way, or the subject
    auto operator<=>(const Key&) const = default;
  };

  void append_entry(const Key& key, int rank, int size, const Signature& signature);
  static std::size_t bytes_of(const Key& key);
  void read(std::string_view batch, int sender);
  void add(const Key& key, int size, const Call& call);
  void send(std::string batch);
  void report(const std::string& message);
  void report_late();
  std::string describe(const Key& key, const Collective& collective);
  void keep_label(const Signature& signature, std::string_view label);
  std::string whole_label_of(const Signature& signature);
  static std::string describe_replays(const Collective& collective);

  const bool compares_here_;
  std::mutex callbacks_mutex_;  // guards the callbacks against `close`
  Send send_;
  Report report_;

  std::mutex noted_mutex_;
  std::vector<std::string> noted_;  // batches; the last one is open
  // Rank 0: its own last labels that do not fit into signatures, by their hashes.
  std::deque<std::pair<std::uint64_t, std::string>> long_labels_;

  std::mutex pending_mutex_;
  std::map<Key, Collective> pending_;         // rank 0: not all ranks have called these
  std::map<int, std::size_t> pending_bytes_;  // of them, by sender
};

/// Where a rank tells what it calls; null: nowhere.
using ComparisonPtr = IntrusivePtr<SignatureComparison>;

}  // namespace lockstep::comm
