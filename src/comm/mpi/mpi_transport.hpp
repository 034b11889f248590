#pragma once

#include <atomic>
#include <string>
#include <vector>

#include <mpi.h>

#include "comm/host/transport.hpp"

namespace lockstep::comm {

/// Messages over an MPI communicator of its own. Polls instead of blocking, so that deadlines and
/// aborts reach a thread that waits for a rank that never comes.
class MpiTransport final : public host::Transport {
 public:
  /// Takes over `communicator`.
  explicit MpiTransport(MPI_Comm communicator);
  ~MpiTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "mpi"; }
  void transfer(std::span<const host::Outgoing> out, std::span<host::Incoming> in,
                const host::WaitOptions& options) override;
  void exchange(std::span<const host::Outgoing> out, std::span<host::Incoming> in,
                const host::WaitOptions& options, host::Arrived arrived) override;
  std::unique_ptr<host::Transport> split(int color, const std::vector<int>& members,
                                         host::GatherBytes all_gather) override;
  void abort(const std::string& reason) noexcept override;
  void check() override { check_abort(); }
  bool quiesce() override;

 private:
  using RequestIterator = std::vector<MPI_Request>::iterator;

  void start(std::span<const host::Outgoing> out, std::span<const host::Incoming> in);
  void receive(const host::Incoming& message, MPI_Request& request);
  template <class Poll>
  void run(std::span<const host::Outgoing> out, std::span<host::Incoming> in,
           const host::WaitOptions& options, Poll poll_once);
  bool poll(std::span<host::Incoming> in);
  bool poll_each(std::span<host::Incoming> in, host::Arrived arrived);
  void check_abort();
  bool has_left_over() const;
  std::vector<int> unfinished(std::span<const host::Outgoing> out,
                              std::span<const host::Incoming> in) const;

  MPI_Comm communicator_;
  int rank_ = 0, size_ = 1;
  static bool test_until(RequestIterator begin, RequestIterator end,
                         host::Clock::time_point deadline);

  std::vector<MPI_Request> requests_;  // receives first
  std::size_t receives_ = 0;           // of them
  std::vector<MPI_Status> statuses_;
  std::vector<int> ended_;  // numbers of requests
  std::atomic<bool> aborted_{false};
  std::vector<char> reason_;  // of the abort, for as long as it is on its way
  bool broken_ = false;       // left with messages under way: the communicator cannot be freed
};

}  // namespace lockstep::comm
