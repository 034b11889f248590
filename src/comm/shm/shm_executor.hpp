#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/host/executor.hpp"
#include "comm/host/pieces.hpp"
#include "comm/shm/meeting.hpp"
#include "comm/shm/waiting.hpp"
#include "comm/shm/window.hpp"

namespace lockstep::comm::shm {

/// Operations through memory that all ranks of a host map. In each step every rank shows a piece of
/// its data, and once all do, takes what it needs from all. The first step of an operation also
/// compares what the ranks have called, and tells where the buffers are: where all lie in the
/// window's heap, the ranks read and write them in place. Sums are `host::fold`'s, in rank order,
/// so they have the bits that messages would give.
class ShmExecutor final : public host::Executor {
 public:
  /// @param window which all ranks have entered.
  /// @param numbers of the ranks in messages; empty: those of the group.
  ShmExecutor(std::unique_ptr<Window> window, int rank, std::string group, bool check_signatures,
              std::vector<int> numbers = {});

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view kind() const override { return "shm"; }
  void run(std::span<const Operation> operations, const host::Deadline& deadline) override;
  void abort(const std::string& reason) noexcept override;
  void check() override;
  void quiesce() override;
  IntrusivePtr<Memory> allocate(std::size_t bytes) override;
  bool is_mismatch_seen_by_all() const override { return check_signatures_ && !has_unreceived_; }
  std::vector<host::Unreceived> unreceived() override;
  std::unique_ptr<host::Executor> split(const SplitPlan& plan) override;

 private:
  using Bytes = std::int64_t;
  struct Message;
  using Part = host::Part;      // in bytes
  using Pieces = host::Pieces;  // too

  /// Bytes of a buffer that other ranks read, or write too.
  struct Offer {
    std::byte* data = nullptr;
    Bytes size = 0;
    bool is_written = false;
  };

  bool offer(const Operation& operation);
  void announce(const Operation& operation);
  void meet();
  void compare(const Operation& operation);
  void require_received(const Operation& operation);
  template <class Show, class Take>
  void in_rounds(const Operation& operation, Bytes rounds, Show show, Take take);
  std::byte* shown_next() const { return window_->stage(rank_, step_ + 1); }
  const std::byte* shown_by(int rank) const { return window_->stage(rank, step_); }

  Pieces pieces_of(const Operation& operation, int places) const;
  void show_parts(const Operation& operation, const Pieces& pieces, Bytes round);
  void fold_piece(const Operation& operation, const std::byte* own, Bytes offset, std::byte* result,
                  Bytes bytes);

  Offer offer_of(const Operation& operation) const;
  bool may_run_in_place(const Operation& operation) const;
  bool find_offers();
  void run_in_place(const Operation& operation);
  void all_reduce_in_place(const Operation& operation);
  void fold_arrays(const Operation& operation, Bytes offset, std::byte* result, Bytes bytes);
  void copy_in_place(std::byte* to, const std::byte* from, Bytes bytes);

  void run_collective(const Operation& operation);
  void run_alone(const Operation& operation);
  void all_reduce_by_all(const Operation& operation);
  void all_reduce_by_parts(const Operation& operation);
  void reduce_scatter(const Operation& operation);
  void all_gather(const Operation& operation);
  void broadcast(const Operation& operation);
  void all_to_all(const Operation& operation);

  void exchange_messages(std::span<const Operation> operations);
  bool advance(Message& message);
  bool send_piece(Message& message);
  bool receive_piece(Message& message);
  int number_of(int rank) const;
  const Window::Piece* next_piece(int sender) const;  // of a mailbox of this rank's; null: none
  Signature signature_of(const Message& message) const;
  bool has_passed(const Message& message) const;
  std::string describe_passed(const Message& message) const;

  std::unique_ptr<Window> window_;
  const int rank_, size_;
  const std::string group_;
  const bool check_signatures_;
  const std::vector<int> numbers_;
  Heap* const heap_;  // null: there is none
  Waiting waiting_;
  std::uint32_t step_ = 0;  // the last one that this rank has come to
  std::vector<const std::byte*> sources_;
  std::vector<std::byte*> arrays_;  // by rank, of an operation in place
  std::optional<Offer> offered_;    // of the operation under way, or of the one that failed
  std::vector<double> factors_;
  bool has_unreceived_ = false;  // a message to this rank, of which the others know nothing
};

}  // namespace lockstep::comm::shm
