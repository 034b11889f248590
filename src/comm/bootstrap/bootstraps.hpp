#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lockstep/comm/bootstrap.hpp"

namespace lockstep::comm {

/// What a launcher says about the job it started.
struct Launch {
  std::string launcher;  ///< such as "Open MPI's mpirun"
  int size = 1;
};

/// The name of the launcher whose ranks are its children.
inline constexpr const char* open_mpi_launcher = "Open MPI's mpirun";

/// The MPI launcher that started this process, if any.
std::optional<Launch> detect_mpi_launcher();

/// Where and who, for ranks that meet over TCP.
struct TcpJob {
  int rank = 0, size = 1;
  std::string address;
  int port = 0;
  std::string token;
  std::chrono::milliseconds timeout{};
  /// All ranks are on this host and have no token: they meet by a local name, and the system tells
  /// whose they are.
  bool is_local = false;
};

/// The job that the torchrun-style environment describes, if any. @throws InvalidArgument
std::optional<TcpJob> detect_environment_job(const BootstrapOptions& options);
/// The job that explicit options describe, if any. @throws InvalidArgument
std::optional<TcpJob> explicit_job(const BootstrapOptions& options);

/// How long ranks wait for each other: from the options or the environment. @throws InvalidArgument
std::chrono::milliseconds join_timeout(const BootstrapOptions& options);

/// Joins over MPI (`mpi/`) or refuses (`no_mpi.cpp`).
std::unique_ptr<Bootstrap> make_mpi_bootstrap(const Launch& launch,
                                              std::chrono::milliseconds timeout);
/// Whether the program has initialised MPI by itself, without a launcher: it is alone then, though
/// MPI sets the variables of one.
bool is_mpi_singleton();
/// Joins over TCP.
std::unique_ptr<Bootstrap> make_tcp_bootstrap(const TcpJob& job);
/// A job of this process alone.
std::unique_ptr<Bootstrap> make_single_bootstrap();

}  // namespace lockstep::comm
