#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "comm/operation.hpp"
#include "lockstep/comm/communicator.hpp"

namespace lockstep::comm {

/// What communicators of every backend have in common: a place in a group, and calls that check
/// their arguments and become one Operation. A backend carries those out.
class OperationCommunicator : public Communicator {
 public:
  int rank() const final { return rank_; }
  int size() const final { return size_; }
  const std::string& name() const final { return name_; }

  Work all_reduce(Buffer buffer, Reduction reduction, const CollectiveOptions& options) final;
  Work reduce_scatter(ConstBuffer input, Buffer output, Reduction reduction,
                      std::span<const std::int64_t> counts, const CollectiveOptions& options) final;
  Work all_gather(ConstBuffer input, Buffer output, std::span<const std::int64_t> counts,
                  const CollectiveOptions& options) final;
  Work broadcast(Buffer buffer, int root, const CollectiveOptions& options) final;
  Work all_to_all(ConstBuffer input, Buffer output, const CollectiveOptions& options) final;
  Work send(ConstBuffer buffer, int to, const CollectiveOptions& options) final;
  Work receive(Buffer buffer, int from, const CollectiveOptions& options) final;
  Work barrier(const CollectiveOptions& options) final;

 protected:
  OperationCommunicator(int rank, int size, std::string name, const CommunicatorOptions& options)
      : rank_(rank), size_(size), name_(std::move(name)), options_(options) {}

  const CommunicatorOptions& options() const { return options_; }
  /// The name of this rank's part of the next split: "world/0.1".
  std::string next_part_name(int color);

 private:
  /// Begins an operation whose arguments are right; its sequence number is the backend's to give.
  virtual Work submit(Operation operation) = 0;
  Work start(Operation operation, const CollectiveOptions& options);

  const int rank_, size_;
  const std::string name_;
  const CommunicatorOptions options_;
  std::uint64_t splits_ = 0;
};

}  // namespace lockstep::comm
