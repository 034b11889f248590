#include "comm/mpi/mpi_bootstrap.hpp"

#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include <mpi.h>

#include "comm/bootstrap/bootstraps.hpp"
#include "comm/mpi/mpi_call.hpp"

namespace lockstep::comm {
namespace {

/// Ends the process where MPI_Init takes longer than ranks wait for late ones: Open MPI waits for
/// a rank that has ended well before any other was there, and nothing else can stop it.
class InitWatch {
 public:
  explicit InitWatch(std::chrono::milliseconds limit)
      : thread_([this, limit] {
          std::unique_lock lock(mutex_);
          if (ended_.wait_for(lock, limit, [this] { return has_ended_; })) return;
          std::fprintf(stderr,
                       "error: MPI_Init has waited for %.0f s: is a rank late, or did one "
                       "end before it made its Session? LOCKSTEP_JOIN_TIMEOUT sets another limit, "
                       "in seconds\n",
                       std::chrono::duration<double>(limit).count());
          std::_Exit(EXIT_FAILURE);
        }) {}
  InitWatch(const InitWatch&) = delete;
  InitWatch& operator=(const InitWatch&) = delete;
  ~InitWatch() {
    {
      const std::lock_guard lock(mutex_);
      has_ended_ = true;
    }
    ended_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool has_ended_ = false;
  std::thread thread_;
};

/// MPI between MPI_Init and MPI_Finalize, unless another part of the program did that: until the
/// last of these is gone. One that was left by an exception, behind which others may not come to
/// its end, goes to the next.
class MpiLibrary {
 public:
  explicit MpiLibrary(std::chrono::milliseconds timeout) {
    int initialized = 0, finalized = 0, level = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    LOCKSTEP_CHECK(!finalized, Unsupported,
                   "MPI is already finalized; a process can join an MPI job only once");
    if (initialized) {
      check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
    } else {
      const InitWatch watch(timeout);
      check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
      is_ours = true;
      // Errors that concern no one communicator, such as those of several requests, would end the
      // process: they are raised on the world, and since MPI 4 on this.
      for (const MPI_Comm communicator : {MPI_COMM_WORLD, MPI_COMM_SELF})
        MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
    }
    LOCKSTEP_CHECK(level >= MPI_THREAD_MULTIPLE, Unsupported, "this MPI gives thread level ", level,
                   ", but lockstep needs MPI_THREAD_MULTIPLE (", MPI_THREAD_MULTIPLE, ")",
                   initialized ? "; the program has called MPI_Init itself: call MPI_Init_thread "
                                 "for that level, or leave it to the Session"
                               : "");
    ++alive;
  }
  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;
  ~MpiLibrary() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    // MPI_Finalize waits for all ranks; after an error they may never come.
    if (--alive == 0 && is_ours && !finalized && std::uncaught_exceptions() == 0) MPI_Finalize();
  }

 private:
  static inline bool is_ours = false;  // was initialised by one of these
  static inline int alive = 0;
};

class LaunchedBootstrap final : public MpiBootstrap {
 public:
  LaunchedBootstrap(const Launch& launch, std::chrono::milliseconds timeout)
      : MpiBootstrap(timeout), library_(timeout) {
    check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
    LOCKSTEP_CHECK(size_ == launch.size, InvalidArgument, launch.launcher, " started ", launch.size,
                   " ranks, but MPI sees ", size_,
                   ": start the program with the mpirun of the MPI that lockstep was built with",
                   std::getenv("SLURM_STEP_NUM_TASKS") && std::getenv("RANK")
                       ? ", or, if the ranks are to meet by RANK and WORLD_SIZE, by srun --mpi=none"
                       : "");
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &communicator_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
    discover_peers();
  }
  LaunchedBootstrap(const LaunchedBootstrap&) = delete;
  LaunchedBootstrap& operator=(const LaunchedBootstrap&) = delete;
  ~LaunchedBootstrap() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (!finalized && std::uncaught_exceptions() == 0) MPI_Comm_free(&communicator_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view kind() const override { return "mpi"; }
  MPI_Comm communicator() const override { return communicator_; }
  void end_job(int exit_code) noexcept override {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }

 private:
  std::vector<std::string> exchange(std::string_view bytes) override;

  MpiLibrary library_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
};

std::vector<std::string> LaunchedBootstrap::exchange(std::string_view bytes) {
  const auto ranks = static_cast<std::size_t>(size_);
  const auto own = static_cast<int>(bytes.size());
  std::vector<int> sizes(ranks), begins(ranks);
  check_mpi(MPI_Allgather(&own, 1, MPI_INT, sizes.data(), 1, MPI_INT, communicator_),
            "MPI_Allgather");
  std::int64_t total = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    begins[r] = static_cast<int>(total);
    total += sizes[r];
    LOCKSTEP_CHECK(total <= INT_MAX, InvalidArgument, "bootstrap: more than ", INT_MAX,
                   " bytes in one exchange");
  }
  std::string joined(static_cast<std::size_t>(total), '\0');
  check_mpi(MPI_Allgatherv(bytes.data(), own, MPI_BYTE, joined.data(), sizes.data(), begins.data(),
                           MPI_BYTE, communicator_),
            "MPI_Allgatherv");
  std::vector<std::string> parts;
  for (std::size_t r = 0; r < ranks; ++r)
    parts.push_back(
        joined.substr(static_cast<std::size_t>(begins[r]), static_cast<std::size_t>(sizes[r])));
  return parts;
}

}  // namespace

std::unique_ptr<Bootstrap> make_mpi_bootstrap(const Launch& launch,
                                              std::chrono::milliseconds timeout) {
  return std::make_unique<LaunchedBootstrap>(launch, timeout);
}

bool is_mpi_singleton() {
  int initialized = 0, finalized = 0, size = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (!initialized || finalized) return false;
  return MPI_Comm_size(MPI_COMM_WORLD, &size) == MPI_SUCCESS && size == 1;
}

}  // namespace lockstep::comm
