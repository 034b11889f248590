#pragma once

#include "comm/communicator_backend.hpp"
#include "comm/group_registry.hpp"
#include "comm/host/collectives.hpp"
#include "comm/host/executor.hpp"
#include "comm/host/transport.hpp"

namespace lockstep::comm::host {

/// Operations as messages between pairs of ranks, over any transport.
class MessageExecutor final : public Executor {
 public:
  /// @param group name for messages. @param direct_ranks see Collectives.
  MessageExecutor(std::unique_ptr<Transport> transport, std::string group, bool check_signatures,
                  int direct_ranks = Collectives::most_direct_ranks);

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  std::string_view kind() const override { return transport_->backend(); }
  void run(std::span<const Operation> operations, const Deadline& deadline) override {
    collectives_.run(operations, deadline);
  }
  void abort(const std::string& reason) noexcept override { transport_->abort(reason); }
  void check() override { transport_->check(); }
  void quiesce() override;
  bool is_mismatch_seen_by_all() const override;
  std::vector<Unreceived> unreceived() override;
  std::unique_ptr<Executor> split(const SplitPlan& plan) override;

 private:
  std::unique_ptr<Transport> transport_;
  Collectives collectives_;
  bool check_signatures_;
};

/// The backend of a group whose ranks exchange messages.
std::unique_ptr<CommunicatorBackend> make_message_backend(std::unique_ptr<Transport> transport,
                                                          std::string name,
                                                          const CommunicatorOptions& options,
                                                          GroupMembership membership = {});

}  // namespace lockstep::comm::host
