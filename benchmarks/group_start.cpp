// How long ranks of one host take to form a group over tcp, and what it costs them:
//
//     build/bin/benchmark_group_start [--json] [--ranks N] [--rounds N]
//
// The program forks the ranks. `start_ms` is from before the fork until the last rank has the
// group, `exchange_ms` one exchange over the bootstrap, `first_us` the first all-reduce of 4 KiB,
// `all_reduce_us` the median of later ones, `after_large_us` the same once one of 1 MiB has gone
// between all pairs; each of the slowest rank. `connections` are of all ranks over the group, ends
// of them divided by two, before and after that large one.
//
//     ... --exchanges_only --ranks N --from A --to B --address HOST --port P
//
// is a part of N ranks, those from A to B - 1 of them, on one of several hosts; rank 0 is on HOST.
// LOCKSTEP_JOB_TOKEN is the same everywhere. Only start and exchanges are timed.

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/tcp/socket.hpp"
#include "lockstep/comm/bootstrap.hpp"
#include "lockstep/comm/host_values.hpp"
#include "support/device.hpp"

namespace {

using namespace lockstep;
using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

/// Connected TCP sockets of this process.
int count_connections() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    count += getpeername(std::atoi(entry.path().filename().c_str()),
                         reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
             peer.ss_family != AF_UNIX;
  }
  return count;
}

double largest(Communicator& world, double value) {
  double most = 0;
  for (const std::string& text : comm::all_gather_bytes(world, std::to_string(value)))
    most = std::max(most, std::stod(text));
  return most;
}

double median_all_reduce(Communicator& world, int rounds) {
  std::vector<float> values(1024);
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    const auto begin = Clock::now();
    world.all_reduce(comm::Buffer(std::span(values))).wait();
    times.push_back(microseconds_since(begin));
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

struct Job {
  int ranks = 16, rounds = 50;
  int from = 0, to = 0;  // of this process' children
  std::string address = "127.0.0.1";
  int port = 0;
  bool exchanges_only = false;
};

void run_rank(const benchmark::Report& report, int rank, const Job& job, Clock::time_point begin) {
  const int ranks = job.ranks, rounds = job.rounds;
  comm::BootstrapOptions options;
  options.rank = rank;
  options.size = ranks;
  options.address = job.address;
  options.port = job.port;
  const auto bootstrap = comm::make_bootstrap(options);
  const int before = count_connections();
  const auto world = comm::make_communicator(*bootstrap, cpu, {.backend = "tcp"});
  const double start = microseconds_since(begin);
  const auto exchange_begin = Clock::now();
  constexpr int exchanges = 5;
  for (int i = 0; i < exchanges; ++i) bootstrap->all_gather_bytes(std::string(40, 'x'), "data");
  const double exchange = microseconds_since(exchange_begin) / exchanges;
  if (job.exchanges_only) {
    const double slowest[] = {largest(*world, start), largest(*world, exchange)};
    if (rank == 0)
      report.add(
          {{"ranks", ranks}, {"start_ms", slowest[0] / 1000}, {"exchange_ms", slowest[1] / 1000}});
    return;
  }
  const double first = median_all_reduce(*world, 1);
  const double later = median_all_reduce(*world, rounds);
  const auto connections = [&] {
    return comm::all_reduce_scalar(*world, std::int64_t{count_connections() - before}) / 2;
  };
  const std::int64_t few = connections();
  std::vector<float> large(1 << 18);
  world->all_reduce(comm::Buffer(std::span(large))).wait();
  const double after_large = median_all_reduce(*world, rounds);
  const std::int64_t many = connections();
  const double all[] = {largest(*world, start), largest(*world, exchange), largest(*world, first),
                        largest(*world, later), largest(*world, after_large)};
  if (rank > 0) return;
  report.add({{"ranks", ranks},
              {"start_ms", all[0] / 1000},
              {"exchange_ms", all[1] / 1000},
              {"first_us", all[2]},
              {"all_reduce_us", all[3]},
              {"after_large_us", all[4]},
              {"connections", few},
              {"connections_after_large", many}});
}

}  // namespace

int main(int argc, char** argv) {
  const benchmark::Report report("group_start", argc, argv);
  if (benchmark::has_no_gpu_case(report, argc, argv, "groups over tcp move the host's memory"))
    return 0;
  Job job;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--exchanges_only") job.exchanges_only = true;
    if (i + 1 == argc) break;
    if (name == "--ranks") job.ranks = std::max(2, std::atoi(argv[i + 1]));
    if (name == "--rounds") job.rounds = std::max(1, std::atoi(argv[i + 1]));
    if (name == "--from") job.from = std::atoi(argv[i + 1]);
    if (name == "--to") job.to = std::atoi(argv[i + 1]);
    if (name == "--address") job.address = argv[i + 1];
    if (name == "--port") job.port = std::atoi(argv[i + 1]);
  }
  if (job.to == 0) job.to = job.ranks;
  if (job.port == 0)
    job.port = comm::tcp::local_endpoint(comm::tcp::listen_on({"127.0.0.1", 0})).port;
  const auto begin = Clock::now();
  for (int rank = job.from + 1; rank < job.to; ++rank) {
    if (fork() != 0) continue;
    run_rank(report, rank, job, begin);
    return 0;
  }
  run_rank(report, job.from, job, begin);
  int status = 0, failed = 0;
  while (wait(&status) > 0) failed += status != 0;
  return failed == 0 ? 0 : 1;
}
