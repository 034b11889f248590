#include "comm/mpi/mpi_transport.hpp"

#include <algorithm>
#include <ctime>
#include <mutex>
#include <thread>

#include <sched.h>

#include "comm/mpi/mpi_call.hpp"
#include "lockstep/comm/errors.hpp"

namespace lockstep::comm {
namespace {

constexpr int data_tag = 1, abort_tag = 2;
constexpr std::size_t max_reason = 2000;
// Peers that live poll far more often; one that is lost never asks for a message again.
constexpr auto send_grace_period = std::chrono::milliseconds(200);
constexpr auto receive_grace_period = std::chrono::seconds(2);

// How a waiting thread spends its time: it polls at once while the answer is likely to be on its
// way, then yields, then naps, so that a late peer does not cost a core.
class Backoff {
 public:
  explicit Backoff(bool eager) : eager_(eager) {}

  /// Pauses a little; true about once a millisecond, when rarer checks are due.
  bool pause() {
    ++polls_;
    if (polls_ < 200) return false;
    if (eager_ || polls_ < 400) {
      sched_yield();
      return polls_ % 1024 == 0;
    }
    const long nap = std::min<long>(100'000, 5'000 * (1 + (polls_ - 400) / 20));
    const timespec time{0, nap};
    nanosleep(&time, nullptr);
    return polls_ % 16 == 0;
  }

 private:
  bool eager_;
  long polls_ = 0;
};

std::size_t bytes_of(const MPI_Status& status) {
  int bytes = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  return static_cast<std::size_t>(bytes);
}

}  // namespace

MpiTransport::MpiTransport(MPI_Comm communicator) : communicator_(communicator) {
  check_mpi(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(communicator_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(communicator_, &size_), "MPI_Comm_size");
}

MpiTransport::~MpiTransport() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized && !broken_ && !aborted_ && !has_left_over()) MPI_Comm_free(&communicator_);
  static std::mutex mutex;
  static std::vector<std::vector<char>> kept;  // until the process ends: MPI may still read them
  const std::lock_guard lock(mutex);
  if (!reason_.empty()) kept.push_back(std::move(reason_));
}

// What others sent before they gave the group up would be taken for messages of the next
// communicator that gets this one's number; Open MPI crashes where the sender is not in that one.
bool MpiTransport::has_left_over() const {
  int arrived = 0;
  MPI_Status status;
  return MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicator_, &arrived, &status) != MPI_SUCCESS ||
         arrived;
}

void MpiTransport::start(std::span<const host::Outgoing> out, std::span<const host::Incoming> in) {
  requests_.clear();
  receives_ = in.size();
  for (const host::Incoming& message : in)
    receive(message, requests_.emplace_back(MPI_REQUEST_NULL));
  for (const host::Outgoing& message : out) {
    check_mpi(
        MPI_Isend(message.data.data(), static_cast<int>(message.data.size()), MPI_BYTE,
                  message.peer, data_tag, communicator_, &requests_.emplace_back(MPI_REQUEST_NULL)),
        "MPI_Isend");
  }
  statuses_.resize(requests_.size());
}

void MpiTransport::receive(const host::Incoming& message, MPI_Request& request) {
  check_mpi(MPI_Irecv(message.room.data(), static_cast<int>(message.room.size()), MPI_BYTE,
                      message.peer, data_tag, communicator_, &request),
            "MPI_Irecv");
}

bool MpiTransport::poll(std::span<host::Incoming> in) {
  int done = 0;
  const int status =
      MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses_.data());
  if (status == MPI_ERR_IN_STATUS) {
    for (const MPI_Status& one : statuses_)
      if (one.MPI_ERROR != MPI_ERR_PENDING) check_mpi(one.MPI_ERROR, "MPI_Testall");
  }
  check_mpi(status, "MPI_Testall");
  if (!done) return false;
  for (std::size_t i = 0; i < in.size(); ++i) in[i].received = bytes_of(statuses_[i]);
  return true;
}

// True once all requests have ended. The receives are the first of them.
bool MpiTransport::poll_each(std::span<host::Incoming> in, host::Arrived arrived) {
  int count = 0;
  ended_.resize(requests_.size());
  const int status = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                  ended_.data(), statuses_.data());
  if (count == MPI_UNDEFINED) return true;
  for (int i = 0; status == MPI_ERR_IN_STATUS && i < count; ++i)
    check_mpi(statuses_[static_cast<std::size_t>(i)].MPI_ERROR, "MPI_Testsome");
  check_mpi(status, "MPI_Testsome");
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const auto request = static_cast<std::size_t>(ended_[i]);
    if (request >= in.size()) continue;
    in[request].received = bytes_of(statuses_[i]);
    if (arrived(in[request])) receive(in[request], requests_[request]);
  }
  return false;
}

template <class Poll>
void MpiTransport::run(std::span<const host::Outgoing> out, std::span<host::Incoming> in,
                       const host::WaitOptions& options, Poll poll_once) {
  try {
    start(out, in);
    Backoff backoff(options.busy_poll);
    while (!poll_once()) {
      if (!backoff.pause()) continue;
      check_abort();
      if (!options.deadline->may_be_over()) continue;
      if (poll_once()) return;  // this thread may have been away for long
      if (auto missing = unfinished(out, in); options.deadline->is_over(missing))
        throw host::TransferTimeout{std::move(missing)};
    }
  } catch (...) {
    broken_ = true;
    throw;
  }
}

void MpiTransport::transfer(std::span<const host::Outgoing> out, std::span<host::Incoming> in,
                            const host::WaitOptions& options) {
  run(out, in, options, [&] { return poll(in); });
}

void MpiTransport::exchange(std::span<const host::Outgoing> out, std::span<host::Incoming> in,
                            const host::WaitOptions& options, host::Arrived arrived) {
  run(out, in, options, [&] { return poll_each(in, arrived); });
}

// MPI gives no message back once its receiver knows of it, and Open MPI none that is sent. What a
// peer answered is let through; the rest goes on in the background, should the peer ever answer.
// Receives come first in `requests_`: one that has begun writes the caller's memory, so it gets
// more time than a send, which only reads.
bool MpiTransport::quiesce() {
  for (MPI_Request& request : requests_)
    if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
  const auto begin = requests_.begin();
  const auto sends = begin + static_cast<std::ptrdiff_t>(std::min(receives_, requests_.size()));
  bool is_quiet = test_until(begin, sends, host::Clock::now() + receive_grace_period);
  is_quiet &= test_until(sends, requests_.end(), host::Clock::now() + send_grace_period);
  for (MPI_Request& request : requests_)
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  requests_.clear();
  return is_quiet;
}

// Each by itself: of a set, the first that failed would hide the others.
bool MpiTransport::test_until(RequestIterator begin, RequestIterator end,
                              host::Clock::time_point deadline) {
  const auto is_done = [](MPI_Request& request) {
    int done = 0;
    return MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done;
  };
  while (!std::all_of(begin, end, is_done)) {
    if (host::Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

std::vector<int> MpiTransport::unfinished(std::span<const host::Outgoing> out,
                                          std::span<const host::Incoming> in) const {
  std::vector<int> peers;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    int done = 0;
    MPI_Request_get_status(requests_[i], &done, MPI_STATUS_IGNORE);
    if (!done) peers.push_back(i < in.size() ? in[i].peer : out[i - in.size()].peer);
  }
  std::ranges::sort(peers);
  const auto [first, last] = std::ranges::unique(peers);
  peers.erase(first, last);
  return peers;
}

void MpiTransport::check_abort() {
  int arrived = 0;
  MPI_Status status;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, abort_tag, communicator_, &arrived, &status), "MPI_Iprobe");
  if (!arrived) {
    if (aborted_) throw PeerFailure("the group was aborted");
    return;
  }
  std::string reason(max_reason, '\0');
  check_mpi(MPI_Recv(reason.data(), static_cast<int>(reason.size()), MPI_BYTE, status.MPI_SOURCE,
                     abort_tag, communicator_, &status),
            "MPI_Recv");
  int length = 0;
  MPI_Get_count(&status, MPI_BYTE, &length);
  reason.resize(static_cast<std::size_t>(length));
  throw PeerFailure(reason);
}

void MpiTransport::abort(const std::string& reason) noexcept {
  if (aborted_.exchange(true)) return;
  reason_.assign(reason.begin(),
                 reason.begin() + static_cast<std::ptrdiff_t>(std::min(reason.size(), max_reason)));
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    // Small enough to leave at once; nobody may be there to complete a longer conversation.
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Isend(reason_.data(), static_cast<int>(reason_.size()), MPI_BYTE, peer, abort_tag,
                  communicator_, &request) != MPI_SUCCESS)
      continue;
    int done = 0;
    for (int i = 0; i < 1000 && !done; ++i) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (!done) MPI_Request_free(&request);
  }
}

std::unique_ptr<host::Transport> MpiTransport::split(int color, const std::vector<int>& members,
                                                     host::GatherBytes) {
  const auto place = std::ranges::find(members, rank_) - members.begin();
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(communicator_, members.empty() ? MPI_UNDEFINED : color,
                           static_cast<int>(place), &part),
            "MPI_Comm_split");
  return part == MPI_COMM_NULL ? nullptr : std::make_unique<MpiTransport>(part);
}

}  // namespace lockstep::comm
