#pragma once

#include <vector>

#include "comm/host/executor.hpp"
#include "comm/window/window.hpp"

namespace lockstep::comm::window {

/// Operations through memory that all ranks map: each shows its data piece by piece, and each takes
/// what it needs from all. As simple as can be, and no faster than that.
class WindowExecutor final : public host::Executor {
 public:
  WindowExecutor(std::unique_ptr<Window> window, int rank, int size, std::string group,
                 bool check_signatures);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view kind() const override { return "window"; }
  void run(std::span<const Operation> operations, const host::Deadline& deadline) override;
  void abort(const std::string& reason) noexcept override { window_->abort(reason); }
  bool is_mismatch_seen_by_all() const override { return true; }
  std::unique_ptr<host::Executor> split(const SplitPlan& plan) override;

 private:
  struct Message;
  using Bytes = std::int64_t;

  template <class Done, class Missing>
  void wait(Done done, Missing missing);
  void barrier();
  void exchange_signatures(const Operation& operation);
  void run_collective(const Operation& operation);
  void show(const Operation& operation, Bytes begin, Bytes total);
  void take(const Operation& operation, Bytes begin, Bytes end);
  void reduce(const Operation& operation, Bytes begin, Bytes end);
  Bytes shown_by(const Operation& operation, int rank) const;
  Bytes begin_of_part(const Operation& operation, int rank) const;
  Bytes size_of_part(const Operation& operation, int rank) const;
  void exchange_messages(std::span<const Operation> operations);
  bool advance(Message& message);

  std::unique_ptr<Window> window_;
  int rank_, size_;
  std::string group_;
  bool check_signatures_;
  const host::Deadline* deadline_ = nullptr;
  std::uint64_t arrivals_ = 0;
  std::vector<Signature> signatures_;
  std::vector<double> factors_;
};

}  // namespace lockstep::comm::window
