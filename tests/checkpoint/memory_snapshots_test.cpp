#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/memory_part.hpp"
#include "checkpoint/thread_job.hpp"
#include "checkpoint/training_run.hpp"
#include "io/file_calls.hpp"
#include "lockstep/io/crc32c.hpp"
#include "support/temporary_folder.hpp"

// Snapshots in memory: what is left of them, and what runs go on from.

namespace lockstep {
namespace {

using ::testing::HasSubstr, ::testing::IsEmpty;
using testing::run_job, testing::TemporaryFolder, testing::TrainingRun;
namespace fs = std::filesystem;

/// A run of which each rank is on a host of its own, or all are on one.
class MemorySnapshots : public ::testing::Test {
 protected:
  MemorySnapshots() {
    set_log_sink([this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      warnings.emplace_back(line);
    });
  }
  ~MemorySnapshots() override {
    set_log_sink(nullptr);
    io::file_calls = {};
  }

  /// The memory of a host.
  fs::path memory(int host) const {
    const fs::path path = folder / detail::concat("host-", host);
    fs::create_directories(path);
    return path;
  }
  testing::TrainingRunOptions options(int host, int zero = 0) const {
    return testing::with_all(zero, {.interval = checkpoint::SaveInterval::every_steps(5),
                                    .snapshot_every = 1,
                                    .snapshot_folder = memory(host)});
  }
  static std::uint32_t hash_of(TrainingRun& run) {
    const std::string weights = run.bytes();
    return io::crc32c(std::as_bytes(std::span(weights)));
  }
  /// Makes so many steps, and dies. @param hosts of the ranks.
  void train(const std::vector<int>& hosts, std::int64_t steps, int zero = 0) {
    run_job(static_cast<int>(hosts.size()), [&](const CommunicatorPtr& group) {
      TrainingRun run(group, folder / name,
                      options(hosts[static_cast<std::size_t>(group->rank())], zero));
      run.resume();
      run.on_step = [&](std::int64_t step) { run.checkpoints().save_if_due(step); };
      run.train(steps);
    });
  }
  /// Goes on to the 30th step. @return from where, and a hash of rank 0's weights.
  std::pair<std::int64_t, std::uint32_t> go_on(const std::vector<int>& hosts, int zero = 0) {
    std::pair<std::int64_t, std::uint32_t> found;
    run_job(static_cast<int>(hosts.size()), [&](const CommunicatorPtr& group) {
      TrainingRun run(group, folder / name,
                      options(hosts[static_cast<std::size_t>(group->rank())], zero));
      const std::int64_t from = run.resume().value_or(0);
      run.train(30);
      const std::uint32_t hash = hash_of(run);
      if (group->rank() == 0) found = {from, hash};
    });
    return found;
  }
  /// That of a run that nothing happens to.
  std::uint32_t expected(int ranks, int zero = 0) {
    std::uint32_t hash = 0;
    run_job(ranks, [&](const CommunicatorPtr& group) {
      TrainingRun run(group, folder / detail::concat("whole-", ranks, "-", zero),
                      testing::with_all(zero));
      run.train(30);
      const std::uint32_t own = hash_of(run);
      if (group->rank() == 0) hash = own;
    });
    return hash;
  }
  /// What ranks that are killed now leave in the memory of two hosts; all ranks call it.
  void keep_memory(comm::Communicator& group) const {
    group.barrier().wait();
    if (group.rank() == 0)
      for (const int host : {0, 1})
        fs::copy(memory(host), folder / detail::concat("left-", host), fs::copy_options::recursive);
    group.barrier().wait();
  }
  /// Has it be there again.
  void restore_memory() const {
    for (const int host : {0, 1}) {
      fs::remove_all(memory(host));
      fs::rename(folder / detail::concat("left-", host), folder / detail::concat("host-", host));
    }
  }
  /// Flips a bit of each rank's part of a snapshot.
  void damage(int host, const std::string& slot) const {
    for (const auto& entry : fs::recursive_directory_iterator(memory(host)))
      if (entry.path().filename().string().ends_with(slot)) {
        std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(100);
        const int byte = file.get();
        file.seekp(100);
        file.put(static_cast<char>(byte ^ 4));
      }
  }

  TemporaryFolder folder;
  std::string name = "run";  // of the run's folder
  std::vector<std::string> warnings;

 private:
  std::mutex mutex_;
};

TEST_F(MemorySnapshots, RunsGoOnFromTheNewestBitwise) {
  for (const int zero : {0, 3}) {
    train({0, 0, 0}, 12, zero);
    EXPECT_EQ(go_on({0, 0, 0}, zero), std::pair(std::int64_t{12}, expected(3, zero)));
    EXPECT_THAT(checkpoint::verify(folder / "run/step-12"), IsEmpty());
    fs::remove_all(folder / "run");
  }
  EXPECT_THAT(warnings, IsEmpty());
}

TEST_F(MemorySnapshots, TheNextHostHasACopyOfWhatALostOneHad) {
  const std::uint32_t weights = expected(3);
  for (const int lost : {0, 1, 2}) {
    train({0, 1, 2}, 12);
    fs::remove_all(memory(lost));
    const int spare = 3 + lost;
    EXPECT_EQ(go_on({lost == 0 ? spare : 0, lost == 1 ? spare : 1, lost == 2 ? spare : 2}),
              std::pair(std::int64_t{12}, weights))
        << lost;
    fs::remove_all(folder / "run");
  }
  train({0, 0, 1}, 12);  // one of whose ranks has two copies
  fs::remove_all(memory(0));
  EXPECT_EQ(go_on({1}).first, 12);
}

TEST_F(MemorySnapshots, WithoutTheMemoryOfTwoHostsTheCheckpointCounts) {
  train({0, 1, 2}, 12);
  for (const int lost : {1, 2}) fs::remove_all(memory(lost));
  EXPECT_EQ(go_on({0, 3, 4}), std::pair(std::int64_t{10}, expected(3)));
}

TEST_F(MemorySnapshots, DamagedOnesAreToldAndNotUsed) {
  const std::uint32_t weights = expected(2);
  train({0, 0}, 12);  // the first of which is in slot 0
  damage(0, "-1");
  EXPECT_EQ(go_on({0, 0}), std::pair(std::int64_t{11}, weights));
  ASSERT_EQ(warnings.size(), 2u);  // of each rank
  EXPECT_THAT(warnings[0], HasSubstr("part of the snapshot of step 12 in memory is damaged"));
  fs::remove_all(folder / "run");
  train({0, 1}, 12);  // of each a copy
  damage(0, "-1");
  EXPECT_EQ(go_on({0, 1}), std::pair(std::int64_t{12}, weights));
  fs::remove_all(folder / "run");
  train({0, 0}, 12);
  for (const std::string slot : {"-0", "-1"}) damage(0, slot);
  EXPECT_EQ(go_on({0, 0}), std::pair(std::int64_t{10}, weights));
}

// One that ranks have not alike is none: the one before counts.
TEST_F(MemorySnapshots, PartsOfOtherStatesAreToldAndNotUsed) {
  train({0, 0}, 12);
  for (const auto& entry : fs::recursive_directory_iterator(memory(0)))
    if (entry.path().filename().string().ends_with("rank-1-of-2-1.is")) {
      const std::string told = testing::read_file(entry.path());
      std::string bytes = testing::read_file(fs::path(entry.path()).replace_extension());
      const std::span<std::byte> part = std::as_writable_bytes(std::span(bytes));
      checkpoint::Snapshot snapshot = checkpoint::snapshot_of_part(told, part.data());
      snapshot.value_names += "another; ";
      std::ofstream(entry.path(), std::ios::binary)
          << checkpoint::describe_part(checkpoint::id_of_part(told), snapshot, part);
    }
  EXPECT_EQ(go_on({0, 0}), std::pair(std::int64_t{11}, expected(2)));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0],
              ::testing::AllOf(HasSubstr("the snapshot of step 12 in memory is not used"),
                               HasSubstr("of rank 1 it has other states than of rank 0")));
}

TEST_F(MemorySnapshots, RanksWithOtherStatesKeepNone) {
  run_job(2, [&](const CommunicatorPtr& group) {
    checkpoint::Manager manager(folder / "run", group, options(0).manager);
    std::int64_t place = 1, other = 0;
    manager.add("place", place);
    manager.save_if_due(1);
    if (group->rank() == 1) manager.add("other", other);
    for (const std::int64_t step : {2, 3}) manager.save_if_due(step);
    auto model = nn::make<nn::Linear>(2, 2);
    DistributedDataParallel ddp(model, group);
    manager.add("model", ddp);
    if (group->rank() == 1) manager.save_if_due(4);  // asks nobody: there are none any more
  });
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0],
              ::testing::AllOf(HasSubstr("no more snapshots in memory: ranks do not save the same"),
                               HasSubstr("'other' was added on rank 1 but not on rank 0")));
  run_job(2, [&](const CommunicatorPtr& group) {
    checkpoint::Manager manager(folder / "run", group, options(0).manager);
    std::int64_t place = 0;
    manager.add("place", place);
    EXPECT_EQ(manager.load_newest(), 1);
  });
}

TEST_F(MemorySnapshots, OnesThatWereLeftBehindAreNotGoneOnFrom) {
  train({0, 0}, 12);
  run_job(2, [&](const CommunicatorPtr& group) {  // goes back, and on without them
    TrainingRun run(group, folder / "run", testing::with_all());
    run.checkpoints().load(folder / "run/step-5");
    run.train(7);
    run.checkpoints().save(7);
    ASSERT_TRUE(run.checkpoints().wait()) << run.checkpoints().error();
  });
  EXPECT_EQ(go_on({0, 0}).first, 7);
  train({0, 0}, 12);
  fs::remove_all(folder / "run");  // and another run begins there
  EXPECT_EQ(go_on({0, 0}).first, 0);
}

TEST_F(MemorySnapshots, OnesOfThisStartFromBeforeALoadAreNotGoneOnFrom) {
  using Body = std::function<void(checkpoint::Manager&, std::int64_t&, comm::Communicator&)>;
  const auto run = [&](const Body& body) {
    run_job(2, [&](const CommunicatorPtr& group) {
      checkpoint::ManagerOptions manager_options = options(group->rank()).manager;
      manager_options.snapshot_every = 4;
      checkpoint::Manager manager(folder / "run", group, manager_options);
      std::int64_t place = 0;
      manager.add("place", place);
      body(manager, place, *group);
    });
  };
  run([&](checkpoint::Manager& manager, std::int64_t& place, comm::Communicator& group) {
    while (place < 12) manager.save_if_due(++place);
    manager.load(folder / "run/step-5");  // and on from there
    while (place < 7) manager.save_if_due(++place);
    manager.save(place);
    ASSERT_TRUE(manager.wait()) << manager.error();
    keep_memory(group);
  });
  restore_memory();
  run([&](checkpoint::Manager& manager, std::int64_t&, auto&) {
    EXPECT_EQ(manager.load_newest(), 7);
  });
}

TEST_F(MemorySnapshots, OnesFromBeforeALoadAreNotGoneOnFromWhereNoMoreAreTaken) {
  run_job(2, [&](const CommunicatorPtr& group) {
    checkpoint::Manager manager(folder / "run", group, options(group->rank()).manager);
    std::int64_t place = 0, other = 0;
    manager.add("place", place);
    while (place < 9) manager.save_if_due(++place);
    if (group->rank() == 1) manager.add("other", other);
    manager.save_if_due(11);  // which takes none, as ranks have other states
    if (group->rank() == 0) manager.add("other", other);
    manager.add("another", other);
    for (const std::int64_t step : {6, 7}) manager.save(step);
    manager.load(folder / "run/step-6");
    manager.save(7);
    ASSERT_TRUE(manager.wait()) << manager.error();
    keep_memory(*group);
  });
  restore_memory();
  EXPECT_EQ(warnings.size(), 1u);
  run_job(2, [&](const CommunicatorPtr& group) {
    checkpoint::Manager manager(folder / "run", group, options(group->rank()).manager);
    std::int64_t place = 0;
    manager.add("place", place);
    EXPECT_EQ(manager.load_newest(), 7);
  });
}

TEST_F(MemorySnapshots, OneThatIsUnderWayIsGoneOnFrom) {
  run_job(2, [&](const CommunicatorPtr& group) {
    checkpoint::ManagerOptions own = options(group->rank()).manager;
    own.interval = checkpoint::SaveInterval::every_steps(1000);
    checkpoint::Manager manager(folder / "run", group, own);
    Tensor weight = zeros({1 << 20});
    manager.add("weight",
                checkpoint::TensorState{
                    .pieces =
                        [&] {
                          return std::vector<checkpoint::Piece>{
                              {.name = "w", .tensor = weight, .copied_later = true}};
                        },
                    .load = [&](const NamedTensors& all) { weight.copy_(all[0].second); }});
    for (std::int64_t step = 1; step <= 10; ++step) {
      weight.fill_(static_cast<double>(step));
      manager.save_if_due(step);
      EXPECT_EQ(manager.load_newest(), step);
      EXPECT_EQ(weight.select(0, 0).item(), static_cast<double>(step));
    }
  });
  EXPECT_THAT(warnings, IsEmpty());
}

TEST_F(MemorySnapshots, ACopyOfARunsFolderIsAnotherRun) {
  train({0, 0}, 7);
  fs::copy(folder / "run", folder / "copy", fs::copy_options::recursive);
  name = "copy";
  EXPECT_EQ(go_on({0, 0}).first, 5);
  train({0, 0}, 12);
  name = "run";
  EXPECT_EQ(go_on({0, 0}).first, 7);
}

TEST_F(MemorySnapshots, AreGoneOnceACheckpointIsAsNew) {
  train({0, 1}, 12);
  train({0, 1}, 13);
  for (const auto& each : fs::recursive_directory_iterator(memory(0)))
    EXPECT_THAT(each.path().string(), ::testing::Not(HasSubstr("g1-")));
  train({0, 1}, 15);
  for (const int host : {0, 1}) EXPECT_TRUE(fs::is_empty(memory(host)));
}

TEST_F(MemorySnapshots, AFolderThatOneRankCannotHaveIsOneWarningAndLeavesNothing) {
  run_job(2, [&](const CommunicatorPtr& group) {
    checkpoint::ManagerOptions own = options(0).manager;
    if (group->rank() == 1) own.snapshot_folder = folder / "nowhere";
    checkpoint::Manager manager(folder / "run", group, own);
    std::int64_t place = 0;
    manager.add("place", place);
    while (place < 7) manager.save_if_due(++place);
    manager.save(place);
  });
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], ::testing::AllOf(HasSubstr("no more snapshots in memory: rank 1: "),
                                            HasSubstr("nowhere")));
  EXPECT_TRUE(fs::is_empty(memory(0)));
}

TEST_F(MemorySnapshots, NoRoomOnOneRankIsOneWarning) {
  static std::atomic<int> refused;
  refused = 1;
  io::file_calls.allocate = [](int descriptor, off_t size) {
    return refused.exchange(0) == 1 ? (errno = ENOSPC, -1)
                                    : io::FileCalls().allocate(descriptor, size);
  };
  train({0, 1}, 12);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], ::testing::AllOf(HasSubstr("no more snapshots in memory: "),
                                            HasSubstr("No space left on device")));
  EXPECT_EQ(go_on({0, 1}), std::pair(std::int64_t{10}, expected(2)));
}

TEST_F(MemorySnapshots, AFolderThatIsOpenToOthersIsNotUsed) {
  train({0}, 12);
  for (const auto& each : fs::directory_iterator(memory(0)))
    fs::permissions(each.path(), fs::perms::all);
  EXPECT_EQ(go_on({0}).first, 10);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("is not a folder of this user that is closed to others"));
}

}  // namespace
}  // namespace lockstep
