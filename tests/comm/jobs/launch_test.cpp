// Jobs as launchers start them, rightly or wrongly.

#include <fstream>

#include <sched.h>

#include "comm/jobs/jobs.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing {
namespace {

class MpiJob : public ::testing::TestWithParam<int> {};

TEST_P(MpiJob, SumsOverAllRanks) {
  const int ranks = GetParam();
  const auto result = mpi_job(ranks, "sum --device cpu", "JOB_COMM=mpi");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string name = std::to_string(rank) + " of " + std::to_string(ranks);
    EXPECT_THAT(result.output, HasSubstr("rank " + name + " (mpi), local " + name));
  }
  EXPECT_EQ(occurrences(result.output, "sum " + std::to_string(ranks * (ranks - 1) / 2)),
            static_cast<std::size_t>(ranks));
}
INSTANTIATE_TEST_SUITE_P(Ranks, MpiJob, ::testing::Values(1, 2, 3, 4));

TEST(ShmJob, IsTheDefaultOnOneHost) {
  const auto result = tcp_job(3, "sum", "JOB_COMM=");
  EXPECT_EQ(occurrences(result.output, "(shm)"), 3u) << result.output;
}

TEST(ShmJob, IsTheDefaultUnderMpirun) {
  const auto result = mpi_job(2, "sum --device cpu");
  EXPECT_EQ(occurrences(result.output, "(shm)"), 2u) << result.output;
}

TEST(JobBackend, IsThatOfTheEnvironmentWhereTheProgramLeavesItOpen) {
  const auto expect = [](const std::string& environment, const std::string& backend) {
    const auto result = tcp_job(2, "sum", environment);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(occurrences(result.output, "(" + backend + ")"), 2u) << environment << result.output;
  };
  expect("JOB_COMM= LOCKSTEP_COMM=tcp", "tcp");
  expect("JOB_COMM= LOCKSTEP_COMM=auto", "shm");
  expect("JOB_COMM=shm LOCKSTEP_COMM=tcp", "shm");
  const auto result = tcp_job(2, "sum", "JOB_COMM= LOCKSTEP_COMM=gloo");
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_THAT(result.output, HasSubstr("LOCKSTEP_COMM: there is no communicator backend \"gloo\""));
}

TEST(ShmJob, TwoAtOnceUnderMpirunDoNotMeet) {
  const std::string job = LOCKSTEP_MPIEXEC " --bind-to none -np 2 " + program + " sum --device cpu";
  const auto both = run_command(job + " & " + job + "; wait");
  EXPECT_EQ(both.exit_code, 0) << both.output;
  EXPECT_EQ(occurrences(both.output, "(shm)"), 4u) << both.output;
  EXPECT_EQ(occurrences(both.output, "sum 1"), 4u) << both.output;
}

// The window cannot be had, so the next backend serves, and rank 0 says why.
TEST(ShmJob, WithoutRoomForTheWindowIsServedByTheNextBackend) {
  const auto result = tcp_job(2, "sum", "JOB_COMM=; ulimit -f 64");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "(tcp)"), 2u) << result.output;
  EXPECT_EQ(occurrences(result.output, "the communicator backend \"shm\" is left out"), 1u)
      << result.output;
  EXPECT_THAT(result.output, HasSubstr("more than the limit on files"));
}

TEST(MpiJobOnGpus, SumsOverNccl) {
  for (const int ranks : {1, 2, 4}) {
    const std::string reason = missing("cuda", ranks);
    if (!reason.empty()) GTEST_SKIP() << reason;
    const auto result = mpi_job(ranks, "sum --device cuda");
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(occurrences(result.output, "(nccl)"), static_cast<std::size_t>(ranks));
    EXPECT_EQ(occurrences(result.output, "sum " + std::to_string(ranks * (ranks - 1) / 2)),
              static_cast<std::size_t>(ranks))
        << result.output;
  }
}

TEST(MpiJobOnGpus, SumsThroughTheHost) {
  const std::string reason = missing("cuda", 2);
  if (!reason.empty()) GTEST_SKIP() << reason;
  for (const std::string backend : {"mpi", "shm", "tcp"}) {
    const auto result = mpi_job(2, "sum --device cuda", "JOB_COMM=" + backend);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(occurrences(result.output, "(" + backend + ", staged)"), 2u) << result.output;
    EXPECT_EQ(occurrences(result.output, "sum 1"), 2u) << result.output;
  }
}

// Slurm's --gpus-per-task=1: all ranks call their GPU number 0.
TEST(MpiJobOnGpus, TakesRanksThatSeeOneGpuEach) {
  const std::string reason = missing("cuda", 2);
  if (!reason.empty()) GTEST_SKIP() << reason;
  const auto rank = [](int gpu) {
    return " -np 1 env CUDA_VISIBLE_DEVICES=" + std::to_string(gpu) +
           " LOCKSTEP_SIM_DEVICES=1 LOCKSTEP_SIM_FIRST_DEVICE=" + std::to_string(gpu) + " " +
           program + " sum --device cuda";
  };
  const std::string mpiexec = LOCKSTEP_MPIEXEC " --bind-to none";
  const auto apart = run_command(mpiexec + rank(0) + " :" + rank(1));
  EXPECT_EQ(apart.exit_code, 0) << apart.output;
  EXPECT_EQ(occurrences(apart.output, "sum 1"), 2u) << apart.output;
  const auto same = run_command(mpiexec + rank(1) + " :" + rank(1));
  EXPECT_EQ(same.exit_code, 2) << same.output;
  EXPECT_THAT(same.output, AllOf(HasSubstr("rank 1 on host"), HasSubstr("needs its own")));
}

TEST(MpiJobOnGpus, LeavesTheOnlyGpuThatARankSeesToIt) {
  const std::string reason = missing("cuda", 2);
  if (!reason.empty()) GTEST_SKIP() << reason;
  const auto rank = [](const std::string& visible, int count) {
    return " -np 1 env CUDA_VISIBLE_DEVICES=" + visible +
           " LOCKSTEP_SIM_DEVICES=" + std::to_string(count) + " " + program + " sum --device cuda";
  };
  const auto result =
      run_command(LOCKSTEP_MPIEXEC " --bind-to none" + rank("0,1", 2) + " :" + rank("0", 1));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "sum 1"), 2u) << result.output;
}

TEST(MpiJobOnGpus, ShareGpusWhereAsked) {
  if (const std::string reason = missing("cuda", 2); !reason.empty()) GTEST_SKIP() << reason;
  for (const std::string device : {"cuda", "auto", "cuda:0"}) {
    const auto result = mpi_job(3, "sum --device " + device,
                                "LOCKSTEP_SIM_DEVICES=2 CUDA_VISIBLE_DEVICES=0,1 "
                                "LOCKSTEP_SHARE_GPUS=1 JOB_COMM=shm");
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(occurrences(result.output, "(shm, staged)"), 3u) << result.output;
    EXPECT_EQ(occurrences(result.output, "sum 3"), 3u) << result.output;
  }
  // Rank 0's word counts.
  const std::string each = LOCKSTEP_MPIEXEC " --bind-to none -np 1 env LOCKSTEP_SHARE_GPUS=1 " +
                           program + " sum --device cuda : -np 1 env LOCKSTEP_SHARE_GPUS=0 " +
                           program + " sum --device cuda";
  const auto one =
      run_command("LOCKSTEP_SIM_DEVICES=1 CUDA_VISIBLE_DEVICES=0 LOCKSTEP_COMM=shm " + each);
  EXPECT_EQ(one.exit_code, 0) << one.output;
  EXPECT_EQ(occurrences(one.output, "sum 1"), 2u) << one.output;
  const auto result = mpi_job(2, "sum --device cuda", "LOCKSTEP_SHARE_GPUS=yes");
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_THAT(result.output, HasSubstr("LOCKSTEP_SHARE_GPUS is \"yes\"; give 0 or 1"));
}

TEST(MpiJobOnGpus, SaysThatAJobRunsOnTheCpuForWantOfGpus) {
  const std::string reason = missing("cuda", 1);
  if (!reason.empty()) GTEST_SKIP() << reason;
  const auto result =
      mpi_job(2, "sum --device auto", "LOCKSTEP_SIM_DEVICES=1 CUDA_VISIBLE_DEVICES=0");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "there are GPUs for 1 of 2 ranks only"), 1u)
      << result.output;
}

TEST(MpiLaunch, RefusesALauncherThatDisagreesWithMpi) {
  const auto result = run_command("OMPI_COMM_WORLD_SIZE=2 " + program + " sum");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, HasSubstr("started 2 ranks, but MPI sees 1"));
}

TEST(MpiLaunch, RefusesAJobWhoseLauncherDisagreesWithMpi) {
  const auto result =
      run_command(LOCKSTEP_MPIEXEC " --bind-to none -np 2 env OMPI_COMM_WORLD_SIZE=3 " + program +
                  " sum --device cpu");
  expect_quick_failure(result);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, HasSubstr("started 3 ranks, but MPI sees 2"));
}

TEST(MpiJobOnGpus, RefusesTooFewGpusOneForTwoRanksAndOneThatIsNotThere) {
  if (const std::string reason = missing("cuda", 2); !reason.empty()) GTEST_SKIP() << reason;
  const auto expect_refusal = [](const std::string& gpus, const std::string& device,
                                 const std::string& words) {
    const auto result = mpi_job(2, "sum --device " + device, gpus);
    expect_quick_failure(result);
    EXPECT_EQ(result.exit_code, 2) << result.output;
    EXPECT_EQ(occurrences(result.output, "error: "), 1u) << result.output;
    EXPECT_THAT(result.output, HasSubstr(words));
  };
  const std::string one = "LOCKSTEP_SIM_DEVICES=1 CUDA_VISIBLE_DEVICES=0 ";
  expect_refusal(one, "cuda", "rank 1 on host ");
  expect_refusal(one, "cuda", "sees no GPU that lower ranks leave: there are too few GPUs");
  expect_refusal("", "cuda:0", "asks for a GPU that a lower rank uses");
  expect_refusal("", "cuda:99", "device cuda:99 does not exist: this rank sees ");
  expect_refusal("LOCKSTEP_SIM_DEVICES=0 CUDA_VISIBLE_DEVICES=", "cuda", "no usable GPU");
}

TEST(MpiLaunch, WarnsOnceOfRanksThatShareCores) {
  const std::string both =
      LOCKSTEP_MPIEXEC " --bind-to none -np 2 taskset -c 0 " + program + " sum --device cpu";
  const auto result = run_command("OMP_NUM_THREADS=2 " + both);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "4 threads of 2 ranks share 1 core,"), 1u) << result.output;
  EXPECT_THAT(result.output, HasSubstr("set OMP_NUM_THREADS=1"));
  const auto with_one = run_command("OMP_NUM_THREADS=1 " + both);
  EXPECT_EQ(with_one.exit_code, 0) << with_one.output;
  EXPECT_EQ(occurrences(with_one.output, "warning"), 0u);
}

/// Cores that this process may use.
int usable_cores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

TEST(MpiLaunch, WarnsOfCoresThatBindingLeavesIdle) {
  if (usable_cores() < 2) GTEST_SKIP() << "one core cannot be left idle";
  const auto run = [](const std::string& binding) {
    return run_command("env -u OMP_NUM_THREADS " LOCKSTEP_MPIEXEC " --bind-to " + binding +
                       " -np 1 " + program + " sum --device cpu");
  };
  const auto bound = run("core");
  EXPECT_EQ(bound.exit_code, 0) << bound.output;
  EXPECT_THAT(bound.output, HasSubstr("--bind-to none"));
  const auto unbound = run("none");
  EXPECT_EQ(unbound.exit_code, 0) << unbound.output;
  EXPECT_EQ(occurrences(unbound.output, "warning"), 0u);
}

/// What a job says whose ranks tell how many threads they have.
/// @param threads of OMP_NUM_THREADS; 0: it is not set
std::string told_threads(const std::string& binding, int ranks, int threads) {
  const std::string variable =
      threads > 0 ? "OMP_NUM_THREADS=" + std::to_string(threads) : "-u OMP_NUM_THREADS";
  const auto result = run_command("env " + variable + " " LOCKSTEP_MPIEXEC " " + binding + " -np " +
                                  std::to_string(ranks) + " " + program + " threads --device cpu");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  return result.output;
}

// Open MPI gives each of two ranks a core of its own, unless it is told otherwise.
TEST(MpiLaunch, GivesRanksTheThreadsThatTheirBindingHasRoomFor) {
  const int cores = usable_cores();
  if (cores < 2) GTEST_SKIP() << "two ranks share one core in any case";
  const std::string bound = told_threads("", 2, 0), free = told_threads("--bind-to none", 2, 0);
  const std::string half = std::to_string(cores / 2);
  for (const std::string rank : {"rank 0 has ", "rank 1 has "}) {
    EXPECT_THAT(bound, HasSubstr(rank + "1,"));
    EXPECT_THAT(free, HasSubstr(rank + half + ","));
  }
  EXPECT_THAT(free, Not(HasSubstr("warning")));
  EXPECT_EQ(occurrences(bound, "the others stay idle"), cores > 2 ? 1U : 0U) << bound;
}

TEST(MpiLaunch, WarnsOnceOfMoreThreadsThanTheBindingHasRoomFor) {
  const int cores = usable_cores();
  if (cores < 2) GTEST_SKIP() << "two ranks share one core in any case";
  const auto expect_warning = [](const std::string& output, const std::string& words) {
    EXPECT_EQ(occurrences(output, "warning: "), 1U) << output;
    EXPECT_THAT(output, HasSubstr(words));
  };
  expect_warning(
      told_threads("--bind-to core", 2, 2),
      "4 threads of 2 ranks share 2 cores, which can make them several times slower: set "
      "OMP_NUM_THREADS=1 or leave it out");
  expect_warning(told_threads("--bind-to none", 2, cores), "or leave it out");
}

TEST(MpiLaunch, RefusesAnUnknownDeviceOnce) {
  const auto result = mpi_job(2, "sum --device tpu");
  expect_quick_failure(result);
  EXPECT_EQ(occurrences(result.output, "got 'tpu'"), 1u) << result.output;
}

TEST(TcpJob, SumsOverTwoAndThreeRanks) {
  for (const int ranks : {2, 3}) {
    const auto result = tcp_job(ranks, "sum");
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(occurrences(result.output, "(tcp)"), static_cast<std::size_t>(ranks))
        << result.output;
    EXPECT_EQ(occurrences(result.output, "sum " + std::to_string(ranks * (ranks - 1) / 2)),
              static_cast<std::size_t>(ranks));
  }
}

TEST(TcpJob, RankWithAnotherTokenIsTurnedAway) {
  const int port = free_port();
  const auto result =
      run_command(tcp_rank(0, 2, port, "sum") + " & first=$!; " +
                  tcp_rank(1, 2, port, "sum", "guess") + "; code=$?; kill $first; exit $code");
  EXPECT_EQ(result.exit_code, 1) << result.output;
  EXPECT_THAT(result.output, HasSubstr("another job token"));
}

TEST(TcpJob, RefusesContradictoryEnvironments) {
  const auto expect_refusal = [](const std::string& environment, const std::string& words) {
    const auto result = run_command(environment + " " + program + " sum");
    EXPECT_EQ(result.exit_code, 2) << environment;
    EXPECT_THAT(result.output, HasSubstr(words)) << environment;
  };
  expect_refusal("RANK=0", "WORLD_SIZE is not");
  expect_refusal("WORLD_SIZE=2", "RANK");
  expect_refusal("WORLD_SIZE=2 RANK=2 MASTER_PORT=1 MASTER_ADDR=x", "RANK must be a number");
  expect_refusal("WORLD_SIZE=two RANK=0", "WORLD_SIZE must be a number");
  expect_refusal("WORLD_SIZE=2 RANK=0 MASTER_PORT=99999 MASTER_ADDR=127.0.0.1", "MASTER_PORT");
  expect_refusal(
      "LOCKSTEP_JOIN_TIMEOUT=soon WORLD_SIZE=2 RANK=0 MASTER_PORT=29740 MASTER_ADDR=127.0.0.1",
      "LOCKSTEP_JOIN_TIMEOUT must be a number");
  expect_refusal("WORLD_SIZE=2 RANK=0 MASTER_PORT=29740 MASTER_ADDR=10.0.0.1",
                 "LOCKSTEP_JOB_TOKEN");
  expect_refusal(
      "TORCHELASTIC_RUN_ID=none LOCAL_WORLD_SIZE=1 WORLD_SIZE=2 RANK=0 MASTER_PORT=29740 "
      "MASTER_ADDR=10.0.0.1",
      "torchrun's run id is no secret");
}

TEST(TcpJob, WaitsForLateRanksForAsLongAsItIsTold) {
  const auto result = run_command("LOCKSTEP_JOIN_TIMEOUT=1 " + tcp_rank(0, 2, free_port(), "sum"));
  EXPECT_EQ(result.exit_code, 1) << result.output;
  EXPECT_THAT(result.output, HasSubstr("these ranks did not connect in time: 1 (of 2)"));
  EXPECT_THAT(result.output,
              HasSubstr("Rank 0's MASTER_ADDR is 127.0.0.1, so it listens to its own "
                        "host alone"));
  EXPECT_THAT(result.output, HasSubstr("LOCKSTEP_JOIN_TIMEOUT"));
}

// One rank as torchrun starts it on a single host, where the run id has its default.
std::string torchrun_rank(int rank, int size, int port) {
  return "TORCHELASTIC_RUN_ID=none TORCHELASTIC_USE_AGENT_STORE=True RANK=" + std::to_string(rank) +
         " LOCAL_RANK=" + std::to_string(rank) + " WORLD_SIZE=" + std::to_string(size) +
         " LOCAL_WORLD_SIZE=" + std::to_string(size) + " MASTER_ADDR=a.host.with.any.name" +
         " MASTER_PORT=" + std::to_string(port) + " " + program + " sum --device cpu";
}

TEST(TcpJob, RanksOfOneHostNeedNoTokenAndNoName) {
  const int port = free_port();
  const auto result =
      run_command(torchrun_rank(1, 3, port) + " & " + torchrun_rank(2, 3, port) + " & " +
                  torchrun_rank(0, 3, port) + "; code=$?; wait; exit $code");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "sum 3,"), 3u) << result.output;
}

TEST(TcpJob, RunsOverIpv6) {
  try {
    comm::tcp::listen_on({"::1", 0});
  } catch (const Error& error) {
    GTEST_SKIP() << "no IPv6 here: " << error.what();
  }
  const int port = free_port();
  const auto rank = [&](int number) {
    return "LOCKSTEP_JOB_TOKEN=secret WORLD_SIZE=2 MASTER_ADDR=::1 MASTER_PORT=" +
           std::to_string(port) + " RANK=" + std::to_string(number) + " " + program +
           " sum --device cpu";
  };
  const auto result = run_command(rank(1) + " & " + rank(0) + "; code=$?; wait; exit $code");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "sum 1,"), 2u) << result.output;
}

TEST(Launch, RefusesARankWithoutANumberOfRanks) {
  for (const std::string variable : {"PMIX_RANK", "PMI_RANK"}) {
    const auto result = run_command(variable + "=1 " + program + " sum --device cpu");
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.output, HasSubstr("a launcher has set " + variable));
    EXPECT_THAT(result.output, HasSubstr("set RANK, WORLD_SIZE"));
  }
}

// As sbatch scripts start programs whose ranks find each other by torch.distributed's variables.
TEST(TcpJob, RunsUnderSrunWithoutPmi) {
  const int port = free_port();
  const auto rank = [&](int number) {
    return "SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=" + std::to_string(number) + " " +
           tcp_rank(number, 2, port, "sum");
  };
  const auto result = run_command(rank(1) + " & " + rank(0) + "; code=$?; wait; exit $code");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "sum 1,"), 2u) << result.output;
}

// As a shell, or a script for each node, that a launcher of one process has started.
TEST(TcpJob, RunsWithinAProcessThatALauncherHasStartedAlone) {
  for (const std::string launcher :
       {"PMIX_RANK=0 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 ", "PMI_RANK=0 PMI_SIZE=1 ",
        "OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 "}) {
    const int port = free_port();
    const auto rank = [&](int number) { return launcher + tcp_rank(number, 2, port, "sum"); };
    const auto result = run_command(rank(1) + " & " + rank(0) + "; code=$?; wait; exit $code");
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(occurrences(result.output, "sum 1,"), 2u) << result.output;
  }
}

// OpenMP binds the first thread before main begins: to one core, of all that the rank may use.
TEST(TcpJob, HasTheThreadsOfAllPlacesOfOpenMp) {
  const auto threads_of = [&](const std::string& environment) {
    const auto result = run_command("env -u OMP_NUM_THREADS " + environment + " " +
                                    tcp_rank(0, 1, free_port(), "threads"));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return result.output;
  };
  const std::string unbound = threads_of("");
  EXPECT_EQ(threads_of("OMP_PROC_BIND=true"), unbound);
  EXPECT_EQ(threads_of("OMP_PLACES=cores"), unbound);
}

// A command that finds `address` behind the name headnode.
std::string with_headnode_at(const TemporaryFolder& folder, const std::string& address,
                             const std::string& command) {
  const std::string hosts = folder / ("hosts_" + address);
  std::ofstream(hosts) << "127.0.0.1 localhost\n" << address << " headnode\n";
  return "unshare -Urm sh -c \"mount --bind " + hosts + " /etc/hosts && " + command + "\"";
}

// Debian gives a host's own name the address 127.0.1.1; other hosts resolve it to the real one.
TEST(TcpJob, RankZeroIsReachedByANameThatIsLoopbackToItself) {
  std::string outside;
  try {
    outside = comm::tcp::reachable_address();
  } catch (const Unsupported& error) {
    GTEST_SKIP() << "no network here: " << error.what();
  }
  const TemporaryFolder folder;
  if (run_command(with_headnode_at(folder, outside, "true")).exit_code != 0)
    GTEST_SKIP() << "no namespaces for processes here";
  const int port = free_port();
  const auto rank = [&](int number, const std::string& address) {
    return with_headnode_at(
        folder, address,
        "RANK=" + std::to_string(number) + " WORLD_SIZE=2 MASTER_ADDR=headnode MASTER_PORT=" +
            std::to_string(port) + " LOCKSTEP_JOB_TOKEN=secret " + program + " sum --device cpu");
  };
  const auto result =
      run_command(rank(1, outside) + " & " + rank(0, "127.0.1.1") + "; code=$?; wait; exit $code");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "sum 1,"), 2u) << result.output;
}

// As behind a service's address, or a router's that translates addresses. 198.18.0.0/15 is
// nobody's.
TEST(TcpJob, RankZeroIsReachedByAnAddressThatIsNotItsOwn) {
  const int port = free_port();
  const auto rank = [&](int number, const std::string& address) {
    return "RANK=" + std::to_string(number) + " WORLD_SIZE=2 MASTER_ADDR=" + address +
           " MASTER_PORT=" + std::to_string(port) + " LOCKSTEP_JOB_TOKEN=secret " + program +
           " sum --device cpu";
  };
  const auto result = run_command(rank(1, "127.0.0.1") + " & " + rank(0, "198.18.7.9") +
                                  "; code=$?; wait; exit $code");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "sum 1,"), 2u) << result.output;
  EXPECT_EQ(occurrences(result.output, "rank 0 listens on all of its interfaces"), 1u)
      << result.output;
}

// As in clusters whose name servers learn of a container after its processes have begun.
TEST(TcpJob, RanksWaitUntilTheNameOfRankZeroIsKnown) {
  const std::string hosts = ::testing::TempDir() + "hosts_late";
  std::ofstream(hosts) << "127.0.0.1 localhost\n";
  const std::string inside = "unshare -Urm sh -c \"mount --bind " + hosts + " /etc/hosts && ";
  if (run_command(inside + "true\"").exit_code != 0)
    GTEST_SKIP() << "no namespaces for processes here";
  const int port = free_port();
  const auto rank = [&](int number) {
    return inside + "RANK=" + std::to_string(number) +
           " WORLD_SIZE=2 MASTER_ADDR=latenode MASTER_PORT=" + std::to_string(port) +
           " LOCKSTEP_JOB_TOKEN=secret " + program + " sum --device cpu\"";
  };
  const auto result =
      run_command(rank(1) + " & " + rank(0) + " & first=$!; sleep 1; echo 127.0.0.1 latenode >> " +
                  hosts + "; wait $first; code=$?; wait; exit $code");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "sum 1,"), 2u) << result.output;
  EXPECT_EQ(occurrences(result.output,
                        "MASTER_ADDR latenode is a loopback address on rank 0's host, so rank 0 "
                        "listens on all of its interfaces"),
            1u)
      << result.output;
}

TEST(SingleJob, NeedsNoLauncher) {
  const auto result = run_command(program + " sum --device cpu");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, HasSubstr("rank 0 of 1 (self)"));
  EXPECT_THAT(run_command(program + " refuse-all").output,
              AllOf(HasSubstr("error: steps must be positive"), Not(HasSubstr("[rank"))));
}

}  // namespace
}  // namespace lockstep::testing
