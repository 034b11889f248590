#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/communicator.hpp"

/// @file
/// How the processes of a job find each other, before any collective.

namespace lockstep::comm {

class GroupRegistry;

/// Options of the job. Whatever is not given comes from the launcher.
struct BootstrapOptions {
  /// This process' rank and the number of ranks: give both, or neither.
  std::optional<int> rank, size;
  /// Address (IPv4, IPv6 or a name) and port at which rank 0 listens; only that address' interface
  /// is used.
  std::string address = "127.0.0.1";
  int port = 29500;
  /// Secret that all ranks of the job share. Default: LOCKSTEP_JOB_TOKEN. Without one, ranks on one
  /// host meet where the system vouches that they are the same user's; on several hosts they are
  /// refused. Names such as torchrun's run id are no secrets and not taken as one.
  std::string token;
  /// How long to wait for the other ranks to appear, and for a slow one while all join: on some
  /// hosts the first use of a GPU takes a minute. Default: LOCKSTEP_JOIN_TIMEOUT in seconds, else
  /// 5 minutes. Under mpirun and srun MPI itself waits before that, for as long as it takes.
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

/// One process of the job.
struct Peer {
  /// Its host's name, for people: several hosts may have the same.
  std::string host;
  int pid = 0;
  /// Equal for processes on one running kernel, whatever container they are in: they share its
  /// processor cores.
  std::string machine;
  /// Equal for processes on one host: they also share a network namespace, so that loopback leads
  /// from one to the other, and as a rule GPUs and their numbers. Containers with networks of their
  /// own are hosts of their own.
  std::string network;
  /// Equal for processes that know each other by their `pid`: containers may count their own.
  std::string processes;
};

/// The processes of a job, and slow but simple exchanges between them. Used by one thread.
///
/// The way in is the first of: explicit options; MPI, if mpirun or srun started the process; the
/// variables RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them; a job of one.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  /// This process' number, 0 to size() - 1.
  virtual int rank() const = 0;
  /// Number of processes.
  virtual int size() const = 0;
  /// "mpi", "tcp" or "single".
  virtual std::string_view kind() const = 0;

  /// Gives every rank the bytes of all ranks, in rank order.
  /// @param label what the bytes are, the same on every rank; part of every error.
  /// @throws Mismatch if the labels differ, Timeout, PeerFailure, MpiError.
  std::vector<std::string> all_gather_bytes(std::string_view bytes, std::string_view label);
  /// Gives every rank root's bytes. @throws as above.
  std::string broadcast_bytes(std::string_view bytes, int root, std::string_view label);
  /// Returns once every rank has called it.
  void barrier(std::string_view label = "barrier") { all_gather_bytes({}, label); }

  /// Ends all processes of the job, this one included, as far as the launcher can.
  [[noreturn]] virtual void end_job(int exit_code) noexcept = 0;

  /// Number of this process among those of its host.
  int local_rank() const { return local_rank_; }
  /// Number of processes on this host.
  int local_size() const { return local_size_; }
  /// All processes, by rank.
  const std::vector<Peer>& peers() const { return peers_; }
  /// True if all ranks are on one host.
  bool is_one_host() const { return local_size_ == size(); }

  /// Address of this rank's interface that leads to the other ranks: loopback where all are on one
  /// host.
  virtual std::string address() const;
  /// How long the ranks wait for each other while they join.
  std::chrono::milliseconds timeout() const { return timeout_; }
  /// @throws PeerFailure naming a rank that is known to have gone since the ranks met. Where it is
  /// the launcher that notices such ranks, it never throws.
  virtual void check_peers() const {}

  /// The groups of ranks that this process is in.
  const std::shared_ptr<GroupRegistry>& groups() const { return groups_; }

 protected:
  explicit Bootstrap(std::chrono::milliseconds timeout = std::chrono::minutes(5));
  /// Exchanges bytes of any kind and length.
  virtual std::vector<std::string> exchange(std::string_view bytes) = 0;
  /// Exchanges hosts and process ids; derived classes call it once they can communicate.
  void discover_peers();

 private:
  int local_rank_ = 0, local_size_ = 1;
  std::vector<Peer> peers_;
  std::chrono::milliseconds timeout_;
  std::shared_ptr<GroupRegistry> groups_;
};

/// The rank that the launcher gave this process, before any bootstrap; 0 without a launcher. For
/// programs that want one rank to speak while they still read their options.
int launch_rank();

/// Joins the job. Blocks until all ranks are there.
/// @throws InvalidArgument where launcher, options and MPI contradict each other, Unsupported where
/// this build cannot follow the launcher, Timeout where ranks do not appear.
std::unique_ptr<Bootstrap> make_bootstrap(const BootstrapOptions& options = {});

/// Makes the communicator of all ranks for buffers on `device`; every rank must call it.
/// @param options name the backend, or leave it to the device and the job: "nccl" on GPUs; on the
/// CPU "shm" for ranks on one host, "hier" for several hosts with several ranks each, else "mpi"
/// where MPI started the ranks, "self" for a rank alone, "tcp". A backend that lacks something
/// after all, such as memory, is left out with a warning on rank 0.
/// @param bootstrap must outlive the communicator.
/// @throws InvalidArgument for an unknown backend or different ones, Unsupported where this build
/// lacks it or it cannot serve the job; on every rank alike.
CommunicatorPtr make_communicator(Bootstrap& bootstrap, Device device,
                                  const CommunicatorOptions& options = {});

}  // namespace lockstep::comm
