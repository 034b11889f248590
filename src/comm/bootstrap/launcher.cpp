#include <charconv>
#include <cstdlib>
#include <string_view>

#include "comm/bootstrap/bootstraps.hpp"
#include "comm/tcp/socket.hpp"
#include "comm/timeout.hpp"
#include "lockstep/comm/info.hpp"

namespace lockstep::comm {
namespace {

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  return value;
}

// A whole number in [low, high], or an error that names where it came from.
int parse_number(std::string_view source, std::string_view text, int low, int high) {
  int value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  LOCKSTEP_CHECK(
      status == std::errc() && end == text.data() + text.size() && value >= low && value <= high,
      InvalidArgument, source, " must be a number from ", low, " to ", high, ", got '", text, "'");
  return value;
}

int required_number(const char* name, int low, int high) {
  const auto text = environment(name);
  LOCKSTEP_CHECK(text, InvalidArgument, "WORLD_SIZE is set but ", name,
                 " is not; a launcher such as torchrun sets RANK, WORLD_SIZE, MASTER_ADDR and "
                 "MASTER_PORT");
  return parse_number(name, *text, low, high);
}

std::string job_token(const BootstrapOptions& options) {
  return options.token.empty() ? environment("LOCKSTEP_JOB_TOKEN").value_or("") : options.token;
}

// torchrun says how many ranks each host has.
bool is_on_one_host(const TcpJob& job) {
  const auto local_size = environment("LOCAL_WORLD_SIZE");
  return tcp::is_loopback(job.address) || (local_size && *local_size == std::to_string(job.size));
}

// Without a secret, only ranks of one host can tell each other from strangers.
TcpJob checked(TcpJob job) {
  job.is_local = job.token.empty() && is_on_one_host(job);
  LOCKSTEP_CHECK(job.size == 1 || job.is_local || !job.token.empty(), InvalidArgument,
                 "ranks on several hosts that meet over TCP need a shared secret: set "
                 "LOCKSTEP_JOB_TOKEN to the same random text on all of them (such as the output "
                 "of 'openssl rand -hex 16'); torchrun's run id is no secret");
  return job;
}

constexpr int max_ranks = 1 << 20;

/// A launcher of one process may have started a shell, or a program, that has started ranks itself:
/// each would take itself for the whole job, and write the same checkpoints.
bool is_within_launched_process(const Launch& launch) {
  const auto size = environment("WORLD_SIZE");
  const bool is_whole =
      environment("RANK") && environment("MASTER_ADDR") && environment("MASTER_PORT");
  return launch.size == 1 && is_whole && size && *size != "1";
}

/// The launcher that speaks of itself in variables.
std::optional<Launch> find_launcher() {
  // srun without a PMI gives MPI no peers; a batch script's own variables do.
  const bool has_pmi = environment("PMI_RANK") || environment("PMIX_RANK");
  const bool has_variables = environment("RANK") && environment("WORLD_SIZE");
  constexpr std::pair<const char*, const char*> launchers[] = {
      {"OMPI_COMM_WORLD_SIZE", open_mpi_launcher},
      {"MV2_COMM_WORLD_SIZE", "MVAPICH's mpirun"},
      {"PMI_SIZE", "a PMI launcher (MPICH's or Intel's mpirun, or srun)"},
  };
  for (const auto& [variable, launcher] : launchers)
    if (const auto size = environment(variable))
      return Launch{launcher, parse_number(variable, *size, 1, max_ranks)};
  constexpr const char* step_size = "SLURM_STEP_NUM_TASKS";
  if (const auto size = environment(step_size); size && (has_pmi || !has_variables))
    return Launch{"Slurm's srun", parse_number(step_size, *size, 1, max_ranks)};
  return std::nullopt;
}

}  // namespace

std::chrono::milliseconds join_timeout(const BootstrapOptions& options) {
  constexpr const char* variable = "LOCKSTEP_JOIN_TIMEOUT";
  constexpr int by_default = 300, longest = 86'400;
  if (options.timeout) return as_long_as_can_be(*options.timeout);
  const auto text = environment(variable);
  return std::chrono::seconds(text ? parse_number(variable, *text, 1, longest) : by_default);
}

std::optional<Launch> detect_mpi_launcher() {
  // torchrun may itself have been started by srun or mpirun: the innermost launcher counts.
  if (environment("TORCHELASTIC_RUN_ID")) return std::nullopt;
  const auto launch = find_launcher();
  return launch && is_within_launched_process(*launch) ? std::nullopt : launch;
}

std::string launcher_name() {
  if (const auto launch = detect_mpi_launcher()) return launch->launcher;
  if (environment("TORCHELASTIC_RUN_ID")) return "torchrun";
  if (environment("LOCKSTEP_RUN_GENERATION")) return "lockstep_run";
  return environment("WORLD_SIZE") ? "the environment (RANK, WORLD_SIZE)" : "";
}

int launch_rank() {
  if (!detect_mpi_launcher() && environment("WORLD_SIZE"))
    return std::atoi(environment("RANK").value_or("0").c_str());
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMI_RANK", "RANK"})
    if (const auto rank = environment(variable)) return std::atoi(rank->c_str());
  if (environment("SLURM_STEP_NUM_TASKS"))
    return std::atoi(environment("SLURM_PROCID").value_or("0").c_str());
  return 0;
}

std::optional<TcpJob> detect_environment_job(const BootstrapOptions& options) {
  if (!environment("WORLD_SIZE")) {
    LOCKSTEP_CHECK(!environment("RANK"), InvalidArgument,
                   "RANK is set but WORLD_SIZE is not: set both, or neither");
    // Each rank would take itself for the whole job, and write the same checkpoints.
    for (const char* variable : {"PMIX_RANK", "PMI_RANK"})
      LOCKSTEP_CHECK(!environment(variable) || is_mpi_singleton(), InvalidArgument,
                     "a launcher has set ", variable,
                     ", but nothing says how many ranks there are: start them with mpirun or srun, "
                     "or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each");
    return std::nullopt;
  }
  TcpJob job;
  job.size = required_number("WORLD_SIZE", 1, max_ranks);
  job.rank = required_number("RANK", 0, job.size - 1);
  job.timeout = join_timeout(options);
  job.token = job_token(options);
  if (job.size == 1) return job;
  job.port = required_number("MASTER_PORT", 1, 65535);
  // torchrun's agent may itself listen on MASTER_PORT; its neighbour is ours then.
  if (environment("TORCHELASTIC_USE_AGENT_STORE") == "True") ++job.port;
  const auto address = environment("MASTER_ADDR");
  LOCKSTEP_CHECK(address, InvalidArgument, "WORLD_SIZE is ", job.size,
                 " but MASTER_ADDR, where rank 0 listens, is not set");
  job.address = *address;
  return checked(job);
}

std::optional<TcpJob> explicit_job(const BootstrapOptions& options) {
  if (!options.rank && !options.size) return std::nullopt;
  LOCKSTEP_CHECK(options.rank && options.size, InvalidArgument,
                 "give both the rank and the number of ranks, or neither");
  LOCKSTEP_CHECK(*options.size >= 1 && *options.size <= max_ranks, InvalidArgument,
                 "the number of ranks must be 1 to ", max_ranks, ", got ", *options.size);
  LOCKSTEP_CHECK(*options.rank >= 0 && *options.rank < *options.size, InvalidArgument,
                 "the rank must be 0 to ", *options.size - 1, ", got ", *options.rank);
  const TcpJob job{*options.rank, *options.size,      options.address,
                   options.port,  job_token(options), join_timeout(options)};
  return checked(job);
}

}  // namespace lockstep::comm
