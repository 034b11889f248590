#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/host/binomial_tree.hpp"
#include "comm/host/transport.hpp"
#include "comm/host/tree_data.hpp"
#include "comm/signature.hpp"

namespace lockstep::comm::host {

/// A collective in two passes over the binomial tree: signatures and data go up, combined on the
/// way, then the root's verdict and the result come down. 2 log2(n) messages one after the other,
/// 2 (n - 1) in all, and of a rank no more than 2 log2(n).
class TreeExchange {
 public:
  /// @param group name for messages.
  /// @param most_data bytes that a rank may ever send to its parent.
  TreeExchange(Transport& transport, std::string group, bool check_signatures,
               std::size_t most_data);

  /// Runs it. All ranks get the same verdict, whatever each of them called.
  /// @param unreceived a sum over this rank's messages to single ranks that is zero over all ranks
  /// if each message was received.
  /// @return true if all ranks mean the same collective; then `result` is there.
  /// @throws Mismatch if a neighbour sends or receives where this rank takes part in a collective.
  bool run(const Operation& operation, std::uint64_t unreceived, const TreeData& data,
           const WaitOptions& options);
  /// Of the last run, until the next one.
  const std::byte* result() const { return down_.data() + sizeof(Verdict); }

  /// Gives the buffers away: see Collectives::abandon_buffers.
  std::vector<std::vector<std::byte>> take_buffers();

 private:
  struct Report {
    Signature signature;  // of the first rank below with a label, or of the first
    std::uint64_t unreceived = 0;
    std::uint64_t agrees = 1;
  };
  struct Verdict {
    std::uint64_t magic = expected_magic;
    std::uint64_t agrees = 1;
    static constexpr std::uint64_t expected_magic = 0x7665726469637421;
  };
  static_assert(sizeof(Report) % 8 == 0 && sizeof(Verdict) % 8 == 0);

  void transfer(std::span<const Outgoing> out, std::span<Incoming> in, const WaitOptions& options);
  void receive_reports(const WaitOptions& options);
  void take_report(const Incoming& message, const Operation& operation, const TreeData& data);
  void exchange_with_parent(const Operation& operation, const TreeData& data,
                            const WaitOptions& options);
  void decide(const TreeData& data);
  void hand_down(const TreeData& data, const WaitOptions& options);
  std::size_t verdict_bytes(const TreeData& data) const;
  [[noreturn]] void refuse(const Operation& operation, const Incoming& message) const;

  Transport& transport_;
  std::string group_;
  bool check_signatures_;
  BinomialTree tree_;
  std::size_t room_;  // for whatever a child may send
  Report report_;
  Verdict verdict_;
  std::vector<std::byte> up_, down_;  // a report or verdict, then data
  std::vector<std::byte> rooms_;      // one a child
  std::vector<Incoming> in_;
};

}  // namespace lockstep::comm::host
