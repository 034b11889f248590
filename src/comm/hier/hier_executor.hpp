#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/hier/background_exchange.hpp"
#include "comm/hier/layout.hpp"
#include "comm/host/executor.hpp"
#include "comm/host/pieces.hpp"
#include "comm/signature.hpp"
#include "lockstep/core/function_ref.hpp"

namespace lockstep::comm::hier {

/// What a group over several hosts is composed of. None compares signatures of its collectives.
struct Parts {
  std::unique_ptr<host::Executor> messages;  ///< all ranks
  std::unique_ptr<host::Executor> inside;    ///< ranks of this host; null where there is one
  std::unique_ptr<host::Executor> between;   ///< leaders, in the order of hosts; null on others
};

/// Operations of ranks on several hosts: what concerns all goes through the memory of each host,
/// and between hosts once, by their leaders. While leaders exchange one chunk, their hosts work on
/// the next. Messages of two ranks go
/// through the memory of a host if both are on it; the others, and all_to_all, go straight.
class HierExecutor final : public host::Executor {
 public:
  /// @param group name for messages.
  HierExecutor(HostLayout layout, Parts parts, std::string group, bool check_signatures);

  int rank() const override { return parts_.messages->rank(); }
  int size() const override { return parts_.messages->size(); }
  std::string_view kind() const override { return "hier"; }
  void run(std::span<const Operation> operations, const host::Deadline& deadline) override;
  void abort(const std::string& reason) noexcept override;
  void check() override;
  void quiesce() override;
  bool is_mismatch_seen_by_all() const override {
    return check_signatures_ && (!parts_.inside || parts_.inside->is_mismatch_seen_by_all());
  }
  std::vector<host::Unreceived> unreceived() override;
  bool is_gone_peer_seen_by_all() const override { return false; }  // its host sees it alone
  std::unique_ptr<host::Executor> split(const SplitPlan& plan) override;

 private:
  using Count = std::int64_t;   // of elements
  using Part = host::Part;      // in elements
  using Pieces = host::Pieces;  // too
  /// Where the pieces of a round lie: one after the other, by host.
  struct Round {
    std::vector<Part> pieces;         // by rank: of its part
    std::vector<Count> places;        // by rank: among all
    std::vector<Count> of_hosts;      // elements of each
    std::vector<Count> of_own_ranks;  // elements of each rank of this host
    Part own{};                       // of this host, among all
    Count total = 0;
  };

  void set_deadlines(std::span<const Operation> operations, const host::Deadline& deadline);
  void run_messages(std::span<const Operation> operations, const host::Deadline& deadline);
  void run_on_both_ways(std::vector<Operation> near, std::span<const Operation> far,
                        const host::Deadline& deadline);
  void run_inside(const Operation& operation);
  void by_places(FunctionRef<void()> run);
  void run_between(const Operation& operation);
  void start_between(Operation operation);
  void await_between(std::uint64_t left);
  void by_leaders(FunctionRef<void()> exchange);

  void run_collective(const Operation& operation, const host::Deadline& deadline);
  void compare(const Operation& operation);
  void gather_signatures(const Operation& operation);
  void broadcast_inside(const Operation& outer, std::byte* data, Count bytes, int root = 0);
  template <class Gather, class Between, class Spread>
  void in_chunks(Count chunks, Gather gather, Between between, Spread spread);
  Pieces pieces_of(const Operation& operation, DType dtype) const;
  Round round_of(const Pieces& pieces, Count round) const;

  void all_reduce(const Operation& operation);
  void reduce_scatter(const Operation& operation);
  void all_gather(const Operation& operation);
  void broadcast(const Operation& operation);
  void barrier(const Operation& operation);

  const HostLayout layout_;
  Parts parts_;
  const std::string group_;
  const bool check_signatures_;
  std::optional<host::Deadline> arrival_, inside_, exchange_, background_, near_;
  bool has_arrived_ = false;
  std::vector<Signature> signatures_;  // of all ranks, by host
  std::vector<std::byte> chunks_[2];   // of two rounds that are under way
  std::vector<std::byte> results_;
  const std::vector<int> all_ranks_;
  BackgroundExchange in_background_;  // between leaders
  BackgroundExchange beside_;         // inside, of batches that also have messages to other hosts
};

/// Composes the executor of a group whose ranks are on several hosts, or on one.
/// @param whole of the group that is split, or of this one. @param messages of the new group.
/// @param host_of_rank of the group that is split.
/// @return null for a rank without a group.
/// @throws Unsupported on all members alike, where one of them cannot have the memory
std::unique_ptr<host::Executor> compose(host::Executor& whole,
                                        std::unique_ptr<host::Executor> messages,
                                        std::span<const int> host_of_rank, const SplitPlan& plan,
                                        bool check_signatures);

}  // namespace lockstep::comm::hier
