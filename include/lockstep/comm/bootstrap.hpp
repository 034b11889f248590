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

namespace host {
class Transport;
}
class GroupRegistry;

/// What may be said about the job. Whatever is not said comes from the launcher.
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
  /// How long to wait for the other ranks to appear.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
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

  /// Gives every rank the bytes of all ranks, in rank order. @throws Timeout, PeerFailure,
  /// MpiError.
  virtual std::vector<std::string> all_gather_bytes(std::string_view bytes) = 0;
  /// Gives every rank root's bytes.
  std::string broadcast_bytes(std::string_view bytes, int root = 0);
  /// Returns once every rank has called it.
  void barrier() { all_gather_bytes({}); }

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

  /// Messages between the ranks for a communicator on the host; every rank must call it.
  virtual std::unique_ptr<host::Transport> make_transport() = 0;

  /// The groups of ranks that this process is in.
  const std::shared_ptr<GroupRegistry>& groups() const { return groups_; }

 protected:
  Bootstrap();
  /// Exchanges hosts and process ids; derived classes call it once they can communicate.
  void discover_peers();

 private:
  int local_rank_ = 0, local_size_ = 1;
  std::vector<Peer> peers_;
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
/// On the CPU the backend follows the bootstrap ("mpi", "tcp", "self"), on a GPU it is "nccl".
/// @param bootstrap must outlive the communicator.
/// @throws Unsupported where this build lacks the backend.
CommunicatorPtr make_communicator(Bootstrap& bootstrap, Device device,
                                  const CommunicatorOptions& options = {});

}  // namespace lockstep::comm
