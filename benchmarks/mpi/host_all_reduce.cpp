// All-reduce between ranks on hosts, in turns with MPI_Allreduce within one run:
//
//     mpirun -np 2 --bind-to core build/bin/benchmark_host_all_reduce [--json] [--comm NAME]
//     [--rounds N] [--largest BYTES] [--registered] [--direct-ranks N]
//     tests/support/hosts.sh 2 --slots 2 --rate 1gbit mpirun -np 4 ...   over two hosts
//
// --direct-ranks, over `mpi` or `tcp`: the largest group whose ranks tell all others their small
// data; larger ones use a tree (docs/adr/0029).
//
// f32, in place, random data. A round times each of the two once at each size, several calls for
// small sizes, `--registered` in memory of the group's; a call ends when the slowest rank's does.
// `limit_us` is the least that 4 n bytes take (each rank reads and writes n once) at the rate of a
// copy that all ranks make at the same time.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <mpi.h>

#include "comm/backends.hpp"
#include "comm/host/host_backend.hpp"
#include "comm/host/message_executor.hpp"
#include "lockstep/comm/bootstrap.hpp"
#include "lockstep/comm/memory.hpp"
#include "support/device.hpp"

namespace lockstep::comm {
const BackendFactory& tcp_backend();  // src/comm/tcp
}

namespace {

using namespace lockstep;

/// All ranks, over TCP or what the job's messages take, with another limit of direct exchanges.
CommunicatorPtr over_messages(comm::Bootstrap& bootstrap, bool over_tcp, int direct_ranks) {
  const comm::BackendFactory& factory =
      over_tcp ? comm::tcp_backend() : comm::message_backend(bootstrap);
  auto executor = std::make_unique<comm::host::MessageExecutor>(factory.connect(bootstrap), "world",
                                                                true, direct_ranks);
  return make_intrusive<Communicator>(std::make_unique<comm::host::HostBackend>(
      std::move(executor), "world", comm::CommunicatorOptions{}));
}

/// Seconds of one call, of `calls` in a row, on this rank.
template <class Call>
double seconds_of(int calls, Call call) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls;
}

/// By round, the time of the slowest rank.
std::vector<double> slowest(std::vector<double> seconds) {
  MPI_Allreduce(MPI_IN_PLACE, seconds.data(), static_cast<int>(seconds.size()), MPI_DOUBLE, MPI_MAX,
                MPI_COMM_WORLD);
  std::ranges::sort(seconds);
  return seconds;
}

void run_size(Communicator& world, const benchmark::Report& report, std::int64_t bytes, int rounds,
              bool is_registered) {
  std::vector<float> source(static_cast<std::size_t>(bytes) / sizeof(float));
  std::minstd_rand generator(static_cast<unsigned>(world.rank()) + 1);
  std::ranges::generate(source, [&] { return static_cast<float>(generator() % 1024) / 1024; });
  std::vector<float> ordinary = source, other = source;
  const auto memory =
      is_registered ? comm::allocate_for(world, static_cast<std::size_t>(bytes)) : nullptr;
  LOCKSTEP_CHECK(memory || !is_registered, Unsupported, "backend ", world.backend(),
                 " has no memory of its own for buffers");
  const std::span<float> values =
      memory ? std::span(static_cast<float*>(memory->data()), source.size()) : std::span(ordinary);
  // Two ranks double the values with each call, which f32 holds for so many.
  const int calls = static_cast<int>(std::clamp<std::int64_t>((1 << 20) / bytes, 1, 100));
  const comm::Buffer buffer{values};
  std::vector<double> ours, peers, copies;
  for (int round = 0; round < rounds + 1; ++round) {
    std::ranges::copy(source, values.begin());
    other = source;
    const double own = seconds_of(calls, [&] { world.all_reduce(buffer).wait(); });
    const double peer = seconds_of(calls, [&] {
      MPI_Allreduce(MPI_IN_PLACE, other.data(), static_cast<int>(other.size()), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
    });
    const double copy = seconds_of(
        calls, [&] { std::memcpy(other.data(), values.data(), values.size() * sizeof(float)); });
    if (round == 0) continue;  // warm-up
    ours.push_back(own);
    peers.push_back(peer);
    copies.push_back(copy);
  }
  ours = slowest(ours);
  peers = slowest(peers);
  copies = slowest(copies);
  if (world.rank() > 0) return;
  const std::size_t middle = ours.size() / 2;
  report.add({{"backend", std::string(world.backend())},
              {"registered", is_registered},
              {"ranks", world.size()},
              {"bytes", bytes},
              {"ours_us", ours[0] * 1e6},
              {"ours_us_median", ours[middle] * 1e6},
              {"mpi_us", peers[0] * 1e6},
              {"mpi_us_median", peers[middle] * 1e6},
              {"ratio", peers[0] / ours[0]},
              {"ratio_of_medians", peers[middle] / ours[middle]},
              {"limit_us", copies[0] * 1e6}});
}

}  // namespace

int main(int argc, char** argv) {
  const benchmark::Report report("host_all_reduce", argc, argv);
  if (benchmark::has_no_gpu_case(report, argc, argv, "use benchmark_allreduce --device cuda"))
    return 0;
  std::string backend;
  int rounds = 30;
  long largest = 64L << 20;
  int direct_ranks = 0;
  bool is_registered = false;
  for (int i = 1; i < argc; ++i)
    is_registered = is_registered || std::strcmp(argv[i], "--registered") == 0;
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--comm") == 0) backend = argv[i + 1];
    if (std::strcmp(argv[i], "--rounds") == 0) rounds = std::max(1, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--largest") == 0) largest = std::atol(argv[i + 1]);
    if (std::strcmp(argv[i], "--direct-ranks") == 0) direct_ranks = std::atoi(argv[i + 1]);
  }
  const auto bootstrap = comm::make_bootstrap();
  const auto world = direct_ranks > 0
                         ? over_messages(*bootstrap, backend == "tcp", direct_ranks)
                         : comm::make_communicator(*bootstrap, cpu, {.backend = backend});
  for (const std::int64_t bytes : {8L, 4L << 10, 64L << 10, 1L << 20, 16L << 20, 64L << 20})
    if (bytes <= largest) run_size(*world, report, bytes, rounds, is_registered);
  return 0;
}
